"""Plans and expressions as text on one line, for comparing them in tests."""

from __future__ import annotations

from tidemark.compute.expr import Call, Cast, Col, Expr, Lit
from tidemark.compute.plan import (
    Constant,
    Filter,
    Finish,
    FlatMap,
    Get,
    Join,
    Let,
    LetRec,
    Local,
    Negate,
    OrderBy,
    OuterJoin,
    Plan,
    Project,
    Reduce,
    Threshold,
    TopK,
    Union,
    Window,
)


def show(node: Plan) -> str:
    match node:
        case Get(id=id_):
            return id_
        case Local(name=name):
            return name
        case Constant(rows=rows):
            return "values" + "".join(f"({_list(row)})" for row in rows)
        case Filter(input=input_, predicate=predicate):
            return f"filter[{show_expr(predicate)}]({show(input_)})"
        case Project(input=input_, outputs=outputs, names=names):
            shown = ", ".join(f"{show_expr(e)} {n}" for e, n in zip(outputs, names, strict=True))
            return f"project[{shown}]({show(input_)})"
        case FlatMap(input=input_, fn=fn, args=args):
            return f"flat[{fn}({_list(args)})]({show(input_)})"
        case Join(inputs=inputs, on=on):
            return f"join[{_list(on)}]({', '.join(show(i) for i in inputs)})"
        case OuterJoin(kind=kind, left=left, right=right, on=on):
            return f"{kind}[{_list(on)}]({show(left)}, {show(right)})"
        case Union(inputs=inputs):
            return f"union({', '.join(show(i) for i in inputs)})"
        case Negate(input=input_):
            return f"-{show(input_)}"
        case Threshold(input=input_):
            return f"threshold({show(input_)})"
        case Reduce(input=input_, keys=keys, aggregates=aggregates):
            aggs = ", ".join(f"{a.fn}({show_expr(a.arg) if a.arg else '*'})" for a in aggregates)
            return f"reduce[{_list(keys)}; {aggs}]({show(input_)})"
        case TopK(input=input_, group=group, order_by=order_by, limit=limit, offset=offset):
            by = ", ".join(f"#{at}" for at in group)
            return f"top[{by}; {_order(order_by)}; {limit}; {offset}]({show(input_)})"
        case Window(input=input_, partition=partition, order_by=order_by, functions=functions):
            by = ", ".join(f"#{at}" for at in partition)
            fns = ", ".join(f"{fn.fn}({_list(fn.args)})" for fn in functions)
            return f"window[{by}; {_order(order_by)}; {fns}]({show(input_)})"
        case Let(name=name, value=value, body=body):
            return f"let {name} = {show(value)} in {show(body)}"
        case LetRec(bindings=bindings, body=body, limit=limit, return_at_limit=returns):
            bound = "; ".join(f"{each.name} = {show(each.value)}" for each in bindings)
            until = "" if limit is None else f" until {limit}{' returning' if returns else ''}"
            return f"rec {bound}{until} in {show(body)}"
        case Finish(input=input_, order_by=order_by, limit=limit, offset=offset, keep=keep):
            return f"finish[{_order(order_by)}; {limit}; {offset}; {keep}]({show(input_)})"


def show_expr(expr: Expr) -> str:
    match expr:
        case Col(index=index):
            return f"#{index}"
        case Lit(value=value):
            return "null" if value is None else value
        case Cast(arg=arg, type=type_):
            return f"{show_expr(arg)}::{type_}"
        case Call(fn=fn, args=args):
            return f"{fn}({_list(args)})"


def _list(exprs: tuple[Expr, ...]) -> str:
    return ", ".join(show_expr(expr) for expr in exprs)


def _order(order_by: tuple[OrderBy, ...]) -> str:
    return ", ".join(f"#{o.index}{' desc' if o.descending else ''}" for o in order_by)
