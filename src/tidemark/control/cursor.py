"""A cursor over the tokens of one statement."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from tidemark.compute.literals import MOST_DIGITS
from tidemark.compute.sql import parse_part
from tidemark.compute.sql.dialect import DIALECT, tokenize
from tidemark.compute.sql.spark_dialect import AROUND_SPARK
from tidemark.control import statements as s
from tidemark.errors import SqlError


class Cursor:
    """A position in the tokens of one statement. `dialect` is that of queries within it; what is
    around them is ours, and only has to know where their strings end."""

    def __init__(self, sql: str, dialect: str = "postgres"):
        self.sql = sql
        self.dialect = dialect
        self.tokens = tokenize(sql, AROUND_SPARK if dialect == "spark" else DIALECT)
        self.at = 0
        for token in self.tokens:
            if token.token_type is TokenType.NUMBER and len(token.text) > MOST_DIGITS:
                raise SqlError(
                    f"a number of {len(token.text):,} digits is out of range", sqlstate="22003"
                ).at(token.start)

    def peek(self, ahead: int = 0) -> Token | None:
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else None

    def looking_at(self, words: str) -> bool:
        """True if the next tokens are these words (unquoted, in any case)."""
        return self._matched(words) > 0

    def take(self, words: str) -> bool:
        matched = self._matched(words)
        self.at += matched
        return matched > 0

    def _matched(self, words: str) -> int:
        """How many tokens make up these words; some keywords are tokens of two words."""
        wanted = words.split()
        count = 0
        while wanted:
            token = self.peek(count)
            if token is None or is_quoted(token):
                return 0
            found = token.text.upper().split()
            if wanted[: len(found)] != found or not found:
                return 0
            wanted = wanted[len(found) :]
            count += 1
        return count

    def expect(self, words: str) -> None:
        if not self.take(words):
            raise self.error()

    def one_of(self, *choices: str) -> str:
        for words in choices:
            if self.take(words):
                return words
        raise self.error()

    def next(self) -> Token:
        token = self.peek()
        if token is None:
            raise self.error()
        self.at += 1
        return token

    def error(self) -> SqlError:
        token = self.peek()
        if token is None:
            return SqlError("syntax error at end of input").at(len(self.sql))
        shown = self.sql[token.start : token.end + 1]
        return SqlError(f'syntax error at or near "{shown}"').at(token.start)

    def end(self) -> None:
        if self.peek() is not None:
            raise self.error()

    def word(self) -> str:
        """An identifier, folded unless quoted."""
        token = self.next()
        if token.token_type == TokenType.IDENTIFIER:
            return token.text
        if token.token_type in (TokenType.STRING, TokenType.NUMBER) or not is_word(token.text):
            self.at -= 1
            raise self.error()
        return token.text.lower()

    def name(self) -> s.Name:
        parts = [self.word()]
        while self.take("."):
            parts.append(self.word())
        if len(parts) > 4:
            raise SqlError(f"improper qualified name (too many dotted names): {'.'.join(parts)}")
        return tuple(parts)

    def text(self) -> str:
        """A string in quotes, or between dollars."""
        token = self.next()
        if token.token_type not in (TokenType.STRING, TokenType.HEREDOC_STRING):
            self.at -= 1
            raise self.error()
        return token.text

    def integer(self) -> int:
        token = self.next()
        if (
            token.token_type not in (TokenType.NUMBER, TokenType.STRING)
            or not token.text.isdecimal()
            or len(token.text) > MOST_DIGITS
        ):
            self.at -= 1
            raise self.error()
        return int(token.text)

    def text_until(self, at: int) -> str:
        """The text from the current token up to (not with) token `at`."""
        start = self.tokens[self.at].start
        return self.sql[start : self.tokens[at - 1].end + 1]

    def find(self, *words: str) -> int:
        """Where any of these words stand next outside parentheses and brackets, or the end."""
        depth = 0
        here = self.at
        try:
            for at in range(here, len(self.tokens)):
                if self.tokens[at].token_type in (TokenType.L_PAREN, TokenType.L_BRACKET):
                    depth += 1
                elif self.tokens[at].token_type in (TokenType.R_PAREN, TokenType.R_BRACKET):
                    depth -= 1
                    if depth < 0:
                        return at
                elif depth == 0 and not is_quoted(self.tokens[at]) and not self._compares(at):
                    self.at = at
                    if any(self.looking_at(choice) for choice in words):
                        return at
        finally:
            self.at = here
        return len(self.tokens)

    def _compares(self, at: int) -> bool:
        """Whether this is the FROM of `IS [NOT] DISTINCT FROM`, which begins no clause."""
        before = [token.text.upper() for token in self.tokens[max(at - 2, 0) : at + 1]]
        return before[1:] == ["DISTINCT", "FROM"] and before[0] in ("IS", "NOT")

    def query(self, *stops: str) -> s.Query:
        """A query up to one of the `stops`, a closing parenthesis or the end."""
        end = self.find(*stops)
        if end == self.at:
            raise self.error()
        sql = self.text_until(end)
        try:
            tree = self.tree(end)
        except SqlError as error:
            if end == len(self.tokens) or not error.message.endswith("end of input"):
                raise
            self.at = end
            raise self.error() from None
        if not isinstance(tree, exp.Query | exp.Values):
            raise self.error()
        self.at = end
        return s.Query(tree, sql, self.dialect)

    def tree(self, end: int, *, before: str = "") -> exp.Expr:
        """What stands here up to token `end`, in the dialect of queries, `before` put before it."""
        return parse_part(self.tokens[self.at : end], self.sql, self.dialect, before=before)


def is_quoted(token: Token) -> bool:
    return token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)


def is_word(text: str) -> bool:
    return text[:1].isalpha() or text[:1] == "_"
