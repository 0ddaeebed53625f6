"""Version of the library, with the names of `torch.version`."""

__version__ = "0.3.0"
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
