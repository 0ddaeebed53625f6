"""The version of this library, with `torch.version`'s names."""

__version__ = "0.1.0"
cuda = hip = xpu = rocm = git_version = None
debug = False


banner = rf"""
                  _                 _
 _ __ ___  _   _ | |_ ___  _ __ ___| |__
| '_ ` _ \| | | || __/ _ \| '__/ __| '_ \
| | | | | | |_| || || (_) | | | (__| | | |
|_| |_| |_|\__, | \__\___/|_|  \___|_| |_|
           |___/                   {__version__}
"""
