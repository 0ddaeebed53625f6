"""Formulas of docstrings, which are plain text such as `y = (x - mean) / sqrt(var + eps)`, as MathML.

A browser displays MathML without fonts or scripts from another host.
"""

import html
import re

TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<number>\d+(?:\.\d+)?(?:e-?\d+)?)|(?P<name>[^\W\d_]\w*'*)"
    r"|(?P<sign>//|<=|>=|!=|==|->|<-|\*\*|\.\.\.|[-+*/^@=<>(),|{}\[\]_:;!~…≤≥≠·×⋆√∑∏∞∈∉→←±−⌊⌋⌈⌉²³⊙∂∇])"
)
SIGNS = {
    "*": "·", "**": "^", "<=": "≤", ">=": "≥", "!=": "≠", "==": "=", "->": "→", "<-": "←", "-": "−", "...": "…", "~": "∼",
}  # fmt: skip
WORDS = set(
    "if otherwise else where for and or not with over of in all each is elsewhere per mod has the on at".split()
)
BIG = {"sum": "∑", "prod": "∏"}
CLOSING = {"(": ")", "[": "]", "{": "}"}
TALL = ' class="tall" stretchy="false"'  # brackets around a fraction: most fonts cannot stretch them, so site.css does


class NotAFormula(ValueError):
    """The text is not a formula that this module can read."""


def mathml(text):
    """Returns the lines of a text as MathML, or None if a line is not a formula."""
    try:
        lines = [_line(line) for line in _lines(text)]
    except NotAFormula:
        return None
    return "".join(f'<math display="block">{line}</math>' for line in lines) or None


def _lines(text):
    """Returns the lines of a text. A line with an open bracket continues on the next line."""
    lines = []
    for line in text.strip().splitlines():
        if lines and lines[-1].count("(") > lines[-1].count(")"):
            lines[-1] += " " + line.strip()
        elif line.strip():
            lines.append(line.strip())
    return lines


def _line(line):
    """Returns a formula as MathML, followed by the text after three or more spaces."""
    line, _, comment = re.sub(r" {3,}", "\0", line, count=1).partition("\0")
    words = f'<mspace width="2em"></mspace><mtext>{html.escape(comment)}</mtext>' if comment else ""
    return f"<mrow>{_Parser(line).formula()}{words}</mrow>" if words else _Parser(line).formula()


def inline(text):
    """Returns a formula of one line as MathML for a table, or None if the text is not one."""
    try:
        return f"<math>{_Parser(text.strip()).formula()}</math>"
    except NotAFormula:
        return None


def _tag(tag, content, attributes=""):
    return f"<{tag}{attributes}>{content}</{tag}>"


class _Parser:
    """Reads one line by recursive descent; methods return MathML."""

    def __init__(self, line):
        line = re.sub(r"`(\w+)`", r"\1", line.strip().rstrip(".,;"))
        line = re.sub(r"(?<=\w)\.m?T\b", "^T", line)
        self.prose = " = " in line  # an equation can contain words
        if re.search(r"--|>>>|\w=\w|[\"`#$%&\\?]", line) or not re.search(r"[=<>^/*+≤≥∑√(]", line):
            raise NotAFormula(line)
        self.tokens, at = [], 0  # (kind, text, whether a space precedes it)
        space = False
        while at < len(line):
            match = TOKEN.match(line, at)
            if match is None:
                raise NotAFormula(line)
            if match.lastgroup == "space":
                space = True
            else:
                self.tokens.append((match.lastgroup, match[0], space))
                space = False
            at = match.end()
        self.at = 0

    def peek(self, ahead=0):
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else (None, "", False)

    def take(self):
        token = self.peek()
        self.at += 1
        return token

    def formula(self):
        result = self.row(None)
        if self.at < len(self.tokens):
            raise NotAFormula(self.peek()[1])
        return result

    def row(self, stop):
        """Reads up to the closing sign `stop`, which is left in place."""
        nodes, words = [], 0  # MathML of factors and signs; names of several letters in a row
        while self.peek()[0] is not None and self.peek()[1] != stop:
            kind, text, _ = self.peek()
            if text in ("/", "//") and nodes:
                self.take()
                nodes[-1] = _tag("mfrac", self.bare(nodes[-1]) + self.bare(self.factor()))
                if text == "//":
                    nodes[-1] = _tag("mrow", _tag("mo", "⌊", TALL) + nodes[-1] + _tag("mo", "⌋", TALL))
            elif kind == "sign" and text not in CLOSING and text not in ("√", "-", "|", "∂", "∇"):
                nodes.append(_tag("mo", html.escape(SIGNS.get(self.take()[1], text))))
            elif text == "-":
                self.take()
                nodes.append(_tag("mo", "−"))
            elif kind == "name" and text in WORDS:
                nodes.append(_tag("mtext", f"&nbsp;{self.take()[1]}&nbsp;"))
            else:
                base = text.partition("_")[0] if kind == "name" else ""
                words = words + 1 if len(base) > 2 and base not in BIG else 0
                if words > 1 and not self.prose:
                    raise NotAFormula(text)
                if nodes and self.peek()[2] and nodes[-1].startswith(("<mi", "<mn", "<msu")):
                    nodes.append('<mspace width="0.2em"></mspace>')
                nodes.append(self.factor())
                continue
            words = 0
        return _tag("mrow", "".join(nodes))

    def factor(self):
        """Reads a name, number or group, with its arguments, index and exponent."""
        node = self.atom()
        while True:
            _, text, space = self.peek()
            if text in ("^", "**"):
                self.take()
                node = _tag("msup", node + self.bare(self.exponent()))
            elif text in ("²", "³"):
                self.take()
                node = _tag("msup", node + _tag("mn", "2" if text == "²" else "3"))
            elif text == "_" and not space:
                self.take()
                node = _tag("msub", node + self.bare(self.factor()))
            elif text == "[" and not space:
                self.take()
                node = _tag("msub", node + self.group("]"))
            elif text == "(" and not space and node.startswith(("<mi", "<msu")):
                self.take()
                node = _tag(
                    "mrow", node + '<mo stretchy="false">(</mo>' + self.group(")") + '<mo stretchy="false">)</mo>'
                )
            else:
                return node

    def exponent(self):
        if self.peek()[1] in ("-", "+"):
            sign = SIGNS.get(self.take()[1], "+")
            return _tag("mrow", _tag("mo", sign) + self.factor())
        return self.atom()

    def atom(self):
        kind, text, _ = self.take()
        if kind == "number":
            return _tag("mn", text)
        if kind == "name":
            return self.name(text)
        if text in CLOSING:
            inner = self.group(CLOSING[text])
            stretch = TALL if "<mfrac" in inner else "" if re.search("<m(?:under|sqrt)", inner) else ' stretchy="false"'
            return _tag("mrow", _tag("mo", text, stretch) + inner + _tag("mo", CLOSING[text], stretch))
        if text == "|":
            return _tag("mrow", '<mo stretchy="false">|</mo>' + self.group("|") + '<mo stretchy="false">|</mo>')
        if text == "√":
            return _tag("msqrt", self.bare(self.factor()))
        if text == "-":
            return _tag("mrow", _tag("mo", "−") + self.factor())
        if text in ("∞", "…", "...", "∂", "∇"):
            return _tag("mi", SIGNS.get(text, text))
        raise NotAFormula(text)

    def group(self, stop):
        """Reads the inside of a group and its closing sign."""
        inner = self.row(stop)
        if self.take()[1] != stop:
            raise NotAFormula(stop)
        return inner

    def name(self, text):
        """A name; a part after its first underscore is a subscript, and `sqrt(…)` is a root."""
        if text == "sqrt" and self.peek()[1] == "(":
            self.take()
            return _tag("msqrt", self.group(")"))
        base, underscore, index = text.partition("_")
        if base in BIG and self.peek()[1] not in ("(", *WORDS):
            big = _tag("mo", BIG[base])
            big = _tag("munder", big + self.index(index)) if underscore else big
            return _tag("mrow", big + self.factor()) if self.peek()[0] is not None else big
        if not underscore:
            return _tag("mi", html.escape(text))
        if len(base) > 2 and index and "_" in text:  # a parameter such as `weight_decay`
            return _tag("mi", html.escape(text))
        return _tag("msub", _tag("mi", html.escape(base)) + self.index(index))

    def index(self, index):
        """The subscript that follows an underscore: the rest of the name, or a group."""
        if index:
            return _tag("mi", html.escape(index))
        return self.bare(self.factor())

    @staticmethod
    def bare(node):
        """A group without its parentheses, where a fraction, root, index or exponent replaces them."""
        match = re.fullmatch(r"<mrow><mo[^>]*>[({]</mo>(<mrow>.*</mrow>)<mo[^>]*>[)}]</mo></mrow>", node, re.S)
        return match[1] if match else node
