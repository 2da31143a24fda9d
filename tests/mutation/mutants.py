"""All the ways to break a module in one place: comparisons, bounds, conditions, constants, arithmetic, statements."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
COUNTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Add,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
NAMED = {"min": "max", "max": "min", "any": "all", "all": "any", "floor": "ceil", "ceil": "floor"}
SKIPPED = ("annotation", "returns", "decorator_list", "type_comment")


@dataclass(frozen=True)
class Mutant:
    """One change: `field` of `parent` becomes `new`."""

    line: int
    where: str | None  # the outermost function that holds it, by its qualified name; None: the module itself
    what: str
    parent: Any
    field: str
    index: int | None
    new: Any

    def compiled(self, tree: ast.Module, path: Path) -> Any:
        """The module with this change alone."""
        holder = getattr(self.parent, self.field)
        old = holder if self.index is None else holder[self.index]
        self._set(self.new)
        try:
            return compile(ast.fix_missing_locations(tree), str(path), "exec")
        finally:
            self._set(old)

    def _set(self, node: Any) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def mutants(tree: ast.Module) -> list[Mutant]:
    return list(_inside(tree, None, "", 1))


def _inside(node: ast.AST, where: str | None, prefix: str, line: int) -> Iterator[Mutant]:
    if isinstance(node, ast.ClassDef):
        prefix = f"{prefix}{node.name}."
    for field, value in ast.iter_fields(node):
        if field in SKIPPED:
            continue
        # Defaults of a function are made where it is defined: outside of it.
        own = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and field == "body"
        place = where or f"{prefix}{node.name}" if own and hasattr(node, "name") else where
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or _is_left_alone(child):
                continue
            at = getattr(child, "lineno", line)
            for new in _variants(child):
                yield Mutant(at, place, f"{_shown(child)} -> {_shown(new)}", node, field, index, new)
            if not isinstance(child, ast.Raise):  # what a message says is for people
                yield from _inside(child, place, prefix, at)


def _variants(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(left, [*operators], rights):
            for place, operator in enumerate(operators):
                other = COMPARED[type(operator)]()
                yield ast.Compare(left, [*operators[:place], other, *operators[place + 1 :]], rights)
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.UnaryOp(ast.USub(), operand) if not isinstance(operand, ast.Constant):
            yield operand
        case ast.BinOp(left, operator, right) if type(operator) in COUNTED and not _is_text(left):
            yield ast.BinOp(left, COUNTED[type(operator)](), right)
        case ast.AugAssign(target, operator, value) if type(operator) in COUNTED:
            yield ast.AugAssign(target, COUNTED[type(operator)](), value)
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield ast.Constant(value + 1)
        case ast.Constant(str() as value):
            yield ast.Constant(value + "!")
        case ast.Call(ast.Name(name), arguments, keywords) if name in NAMED:
            yield ast.Call(ast.Name(NAMED[name], ast.Load()), arguments, keywords)
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.If(test, body, orelse):
            yield ast.If(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.While(test, body, orelse) if not isinstance(test, ast.Constant):
            yield ast.While(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.comprehension(target, iterated, ifs, is_async) if ifs:
            yield ast.comprehension(target, iterated, [ast.UnaryOp(ast.Not(), ifs[0]), *ifs[1:]], is_async)
        case ast.Return(value) if value is not None and not (isinstance(value, ast.Constant) and value.value is None):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(ast.Call() | ast.Await()) | ast.Raise() | ast.Delete():
            yield ast.Pass()
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()
        case ast.Match(subject, [_, _, *_] as cases):
            for place in range(len(cases)):
                yield ast.Match(subject, [*cases[:place], *cases[place + 1 :]])
        case ast.match_case(pattern, ast.expr() as guard, body):
            yield ast.match_case(pattern, ast.UnaryOp(ast.Not(), guard), body)
        case _:
            pass


def _shown(node: ast.AST) -> str:
    if isinstance(node, ast.Match):
        text = f"match {ast.unparse(node.subject)}: {', '.join(ast.unparse(case.pattern) for case in node.cases)}"
    elif isinstance(node, ast.If | ast.While):
        text = f"{type(node).__name__.lower()} {ast.unparse(ast.fix_missing_locations(node.test))}"
    else:
        text = " ".join(ast.unparse(ast.fix_missing_locations(node)).split())
    return text if len(text) <= 90 else f"{text[:87]}..."


def _is_left_alone(node: ast.AST) -> bool:
    """Documentation, types, and what is there for type checkers only."""
    match node:
        case ast.Assert() | ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.Expr(ast.Constant()):
            return True
        case ast.If(ast.Name("TYPE_CHECKING")):
            return True
        case ast.Assign([ast.Name(name)]) | ast.AnnAssign(ast.Name(name)):
            return name == "__all__"
        case ast.Call(ast.Name("cast" | "TypeVar")):
            return True
        case _:
            return False


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
