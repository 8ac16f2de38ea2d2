"""Expressions run on Spark: values and errors, row by row, as PostgreSQL 15 gives them.

`POSTGRES` was recorded from PostgreSQL: one line per expression, one cell per row of `ROWS`; a cell
that starts with `!` is the error message. `OURS` lists the expressions whose results differ from
PostgreSQL, and what they are here instead: numerics have 38 digits, 16 of them decimals when bare;
dates stay within four-digit years; nothing is folded ahead of a guard.
"""

from __future__ import annotations

from decimal import Decimal

import pytest
from pyspark.sql import Row, SparkSession

from tidemark.compute.expr import Expr, Lit, columns_of
from tidemark.compute.literals import spark_literal, typed
from tidemark.compute.plan import Get, Project
from tidemark.compute.render_expr import error, value
from tidemark.compute.sql import parse_query, plan_query
from tidemark.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    NUMERIC,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    Column,
    SqlType,
    numeric,
)

COLUMNS = (
    Column("f", BOOLEAN),
    Column("s", SMALLINT),
    Column("i", INTEGER),
    Column("j", INTEGER),
    Column("b", BIGINT),
    Column("c", BIGINT),
    Column("n", NUMERIC),
    Column("o", NUMERIC),
    Column("m", numeric(10, 2)),
    Column("d", DOUBLE),
    Column("e", DOUBLE),
    Column("t", TEXT),
    Column("u", TEXT),
    Column("dt", DATE),
    Column("ts", TIMESTAMP),
    Column("tz", TIMESTAMPTZ),
)

# One row per line, in the order of COLUMNS.
ROWS = r"""
true ; 7 ; 7 ; 2 ; 7 ; 2 ; 2.5 ; 0.3 ; 12.50 ; 2.5 ; 0.1 ; abcabc ; b ; 2024-02-29 ; 2024-02-29 13:45:06.5 ; 2024-02-29 13:45:06.123456+00
false ; -32768 ; -2147483648 ; -1 ; -9223372036854775808 ; -1 ; -2.5 ; 1000000.1234 ; -0.01 ; -2.5 ; 1e300 ; '' ; '' ; 1999-12-31 ; 1999-12-31 23:59:59 ; 1999-12-31 23:59:59+00
true ; 32767 ; 2147483647 ; 0 ; 9223372036854775807 ; 0 ; 123456789012345.1234567890123456 ; 0 ; 99999999.99 ; 1e308 ; 0 ; '  12 ' ; % ; 2021-01-03 ; 2021-01-03 00:00:00 ; 2021-01-03 00:00:00+00
false ; 0 ; 0 ; 3 ; 0 ; 10 ; 0.0000000000000001 ; 123456.7890123456 ; 0.00 ; 0.5 ; -3 ; 1e3 ; \ ; 1970-01-01 ; 1970-01-01 00:00:00.000001 ; 1969-12-31 23:59:59.999999+00
null ; null ; null ; null ; null ; null ; null ; null ; null ; null ; null ; null ; null ; null ; null ; null
true ; -3 ; -3 ; 10 ; 1000000007 ; 998244353 ; -3.7 ; -0.0000000000000007 ; 33.33 ; 1.5 ; 2 ; héllo wörld 日本 ; l ; 2024-12-30 ; 2024-12-30 01:02:03.04 ; 2024-12-30 01:02:03.04+00
false ; 2 ; 100 ; -4 ; 5 ; -2 ; 3000000 ; 3 ; 7.77 ; NaN ; 1 ; a%b_c\d ; a\%b ; 0001-01-01 ; 0001-01-01 00:00:00 ; 0001-01-01 00:00:00+00
true ; 2 ; 3 ; -4 ; 5 ; -2 ; 99999 ; 7 ; -7.77 ; Infinity ; -1 ; yes ; off ; 9999-12-31 ; 9999-12-31 23:59:59.999999 ; 9999-12-31 23:59:59.999999+00
"""

POSTGRES = r"""
i + j => 9 ; !integer out of range ; 2147483647 ; 3 ; null ; 7 ; 96 ; -1
i - j => 5 ; -2147483647 ; 2147483647 ; -3 ; null ; -13 ; 104 ; 7
i * j => 14 ; !integer out of range ; 0 ; 0 ; null ; -30 ; -400 ; -12
i / j => 3 ; !integer out of range ; !division by zero ; 0 ; null ; 0 ; -25 ; 0
i % j => 1 ; 0 ; !division by zero ; 0 ; null ; -3 ; 0 ; 3
-i => -7 ; !integer out of range ; -2147483647 ; 0 ; null ; 3 ; -100 ; -3
abs(i) => 7 ; !integer out of range ; 2147483647 ; 0 ; null ; 3 ; 100 ; 3
s + s => 14 ; !smallint out of range ; !smallint out of range ; 0 ; null ; -6 ; 4 ; 4
s * s => 49 ; !smallint out of range ; !smallint out of range ; 0 ; null ; 9 ; 4 ; 4
s / s => 1 ; 1 ; 1 ; !division by zero ; null ; 1 ; 1 ; 1
-s => -7 ; !smallint out of range ; -32767 ; 0 ; null ; 3 ; -2 ; -2
abs(s) => 7 ; !smallint out of range ; 32767 ; 0 ; null ; 3 ; 2 ; 2
s % s => 0 ; 0 ; 0 ; !division by zero ; null ; 0 ; 0 ; 0
b + c => 9 ; !bigint out of range ; 9223372036854775807 ; 10 ; null ; 1998244360 ; 3 ; 3
b - c => 5 ; -9223372036854775807 ; 9223372036854775807 ; -10 ; null ; 1755654 ; 7 ; 7
b * c => 14 ; !bigint out of range ; 0 ; 0 ; null ; 998244359987710471 ; -10 ; -10
b / c => 3 ; !bigint out of range ; !division by zero ; 0 ; null ; 1 ; -2 ; -2
b % c => 1 ; 0 ; !division by zero ; 0 ; null ; 1755654 ; 1 ; 1
-b => -7 ; !bigint out of range ; -9223372036854775807 ; 0 ; null ; -1000000007 ; -5 ; -5
abs(b) => 7 ; !bigint out of range ; 9223372036854775807 ; 0 ; null ; 1000000007 ; 5 ; 5
i + b => 14 ; !bigint out of range ; !bigint out of range ; 0 ; null ; 1000000004 ; 105 ; 8
s + b => 14 ; !bigint out of range ; !bigint out of range ; 0 ; null ; 1000000004 ; 7 ; 7
i / b => 1 ; 0 ; 0 ; !division by zero ; null ; 0 ; 20 ; 0
b / i => 1 ; 4294967296 ; 4294967298 ; !division by zero ; null ; -333333335 ; 0 ; 1
mod(b, i) => 0 ; 0 ; 1 ; !division by zero ; null ; 2 ; 5 ; 2
n + o => 2.8 ; 999997.6234 ; 123456789012345.1234567890123456 ; 123456.7890123456000001 ; null ; -3.7000000000000007 ; 3000003 ; 100006
n - o => 2.2 ; -1000002.6234 ; 123456789012345.1234567890123456 ; -123456.7890123455999999 ; null ; -3.6999999999999993 ; 2999997 ; 99992
n * o => 0.75 ; -2500000.30850 ; 0.0000000000000000 ; 0.00000000001234567890123456 ; null ; 0.00000000000000259 ; 9000000 ; 699993
n % o => 0.1 ; -2.5000 ; !division by zero ; 0.0000000000000001 ; null ; -0.0000000000000005 ; 0 ; 4
-n => -2.5 ; 2.5 ; -123456789012345.1234567890123456 ; -0.0000000000000001 ; null ; 3.7 ; -3000000 ; -99999
abs(n) => 2.5 ; 2.5 ; 123456789012345.1234567890123456 ; 0.0000000000000001 ; null ; 3.7 ; 3000000 ; 99999
m + m => 25.00 ; -0.02 ; 199999999.98 ; 0.00 ; null ; 66.66 ; 15.54 ; -15.54
m * m => 156.2500 ; 0.0001 ; 9999999998000000.0001 ; 0.0000 ; null ; 1110.8889 ; 60.3729 ; 60.3729
m / m => 1.00000000000000000000 ; 1.00000000000000000000 ; 1.00000000000000000000 ; !division by zero ; null ; 1.00000000000000000000 ; 1.00000000000000000000 ; 1.00000000000000000000
m + i => 19.50 ; -2147483648.01 ; 2247483646.99 ; 0.00 ; null ; 30.33 ; 107.77 ; -4.77
m * i => 87.50 ; 21474836.48 ; 214748364678525163.53 ; 0.00 ; null ; -99.99 ; 777.00 ; -23.31
m / i => 1.7857142857142857 ; 0.0000000000046566128730773926 ; 0.04656612874780135637 ; !division by zero ; null ; -11.1100000000000000 ; 0.07770000000000000000 ; -2.5900000000000000
i / m => 0.56000000000000000000 ; 214748364800.00000000 ; 21.4748364721474836 ; !division by zero ; null ; -0.09000900090009000900 ; 12.8700128700128700 ; -0.38610038610038610039
m / n => 5.0000000000000000 ; 0.00400000000000000000 ; 0.000000810000007209003710 ; 0.0000000000000000 ; null ; -9.0081081081081081 ; 0.000002590000000000000000 ; -0.000077700777007770077701
n * 2 => 5.0 ; -5.0 ; 246913578024690.2469135780246912 ; 0.0000000000000002 ; null ; -7.4 ; 6000000 ; 199998
n / 3 => 0.83333333333333333333 ; -0.83333333333333333333 ; 41152263004115.0411522630041152 ; 0.000000000000000033333333333333333333 ; null ; -1.23333333333333333333 ; 1000000.000000000000 ; 33333.000000000000
1 / n => 0.40000000000000000000 ; -0.40000000000000000000 ; 0.00000000000000810000007290003711 ; 10000000000000000.0000000000000000 ; null ; -0.27027027027027027027 ; 0.000000333333333333333333 ; 0.000010000100001000010000
m * 1.5 => 18.750 ; -0.015 ; 149999999.985 ; 0.000 ; null ; 49.995 ; 11.655 ; -11.655
m * b => 87.50 ; 92233720368547758.08 ; 922337203593243860331452241.93 ; 0.00 ; null ; 33330000233.31 ; 38.85 ; -38.85
n + 1 => 3.5 ; -1.5 ; 123456789012346.1234567890123456 ; 1.0000000000000001 ; null ; -2.7 ; 3000001 ; 100000
d + e => 2.6 ; 1e+300 ; 1e+308 ; -2.5 ; null ; 3.5 ; NaN ; Infinity
d - e => 2.4 ; -1e+300 ; 1e+308 ; 3.5 ; null ; -0.5 ; NaN ; Infinity
d * e => 0.25 ; -2.5e+300 ; 0 ; -1.5 ; null ; 3 ; NaN ; -Infinity
d / e => 25 ; -2.5e-300 ; !division by zero ; -0.16666666666666666 ; null ; 0.75 ; NaN ; -Infinity
-d => -2.5 ; 2.5 ; -1e+308 ; -0.5 ; null ; -1.5 ; NaN ; -Infinity
abs(d) => 2.5 ; 2.5 ; 1e+308 ; 0.5 ; null ; 1.5 ; NaN ; Infinity
d + i => 9.5 ; -2147483650.5 ; 1e+308 ; 0.5 ; null ; -1.5 ; NaN ; Infinity
d + n => 5 ; -5 ; 1e+308 ; 0.5000000000000001 ; null ; -2.2 ; NaN ; Infinity
d * m => 31.25 ; 0.025 ; !value out of range: overflow ; 0 ; null ; 49.995 ; NaN ; -Infinity
d / 3 => 0.8333333333333334 ; -0.8333333333333334 ; 3.333333333333333e+307 ; 0.16666666666666666 ; null ; 0.5 ; NaN ; Infinity
round(d) => 2 ; -2 ; 1e+308 ; 0 ; null ; 2 ; NaN ; Infinity
round(n) => 3 ; -3 ; 123456789012345 ; 0 ; null ; -4 ; 3000000 ; 99999
round(n, 2) => 2.50 ; -2.50 ; 123456789012345.12 ; 0.00 ; null ; -3.70 ; 3000000.00 ; 99999.00
round(n, 0) => 3 ; -3 ; 123456789012345 ; 0 ; null ; -4 ; 3000000 ; 99999
round(m, 1) => 12.5 ; 0.0 ; 100000000.0 ; 0.0 ; null ; 33.3 ; 7.8 ; -7.8
round(m, -1) => 10 ; 0 ; 100000000 ; 0 ; null ; 30 ; 10 ; -10
round(n, 5) => 2.50000 ; -2.50000 ; 123456789012345.12346 ; 0.00000 ; null ; -3.70000 ; 3000000.00000 ; 99999.00000
round(i) => 7 ; -2147483648 ; 2147483647 ; 0 ; null ; -3 ; 100 ; 3
trunc(d) => 2 ; -2 ; 1e+308 ; 0 ; null ; 1 ; NaN ; Infinity
trunc(n) => 2 ; -2 ; 123456789012345 ; 0 ; null ; -3 ; 3000000 ; 99999
trunc(n, 2) => 2.50 ; -2.50 ; 123456789012345.12 ; 0.00 ; null ; -3.70 ; 3000000.00 ; 99999.00
trunc(m, 1) => 12.5 ; 0.0 ; 99999999.9 ; 0.0 ; null ; 33.3 ; 7.7 ; -7.7
trunc(n, -2) => 0 ; 0 ; 123456789012300 ; 0 ; null ; 0 ; 3000000 ; 99900
floor(d) => 2 ; -3 ; 1e+308 ; 0 ; null ; 1 ; NaN ; Infinity
floor(n) => 2 ; -3 ; 123456789012345 ; 0 ; null ; -4 ; 3000000 ; 99999
floor(m) => 12 ; -1 ; 99999999 ; 0 ; null ; 33 ; 7 ; -8
floor(i) => 7 ; -2147483648 ; 2147483647 ; 0 ; null ; -3 ; 100 ; 3
ceil(d) => 3 ; -2 ; 1e+308 ; 1 ; null ; 2 ; NaN ; Infinity
ceil(n) => 3 ; -2 ; 123456789012346 ; 1 ; null ; -3 ; 3000000 ; 99999
ceiling(m) => 13 ; 0 ; 100000000 ; 0 ; null ; 34 ; 8 ; -7
sqrt(abs(d)) => 1.5811388300841898 ; 1.5811388300841898 ; 1e+154 ; 0.7071067811865476 ; null ; 1.224744871391589 ; NaN ; Infinity
sqrt(d) => 1.5811388300841898 ; !cannot take square root of a negative number ; 1e+154 ; 0.7071067811865476 ; null ; 1.224744871391589 ; NaN ; Infinity
sqrt(e) => 0.31622776601683794 ; 1e+150 ; 0 ; !cannot take square root of a negative number ; null ; 1.4142135623730951 ; 1 ; !cannot take square root of a negative number
power(d, e) => 1.0959582263852172 ; !value out of range: overflow ; 1 ; 8 ; null ; 2.25 ; NaN ; 0
power(e, 2) => 0.010000000000000002 ; !value out of range: overflow ; 0 ; 9 ; null ; 4 ; 1 ; 1
e ^ j => 0.010000000000000002 ; 1e-300 ; 1 ; -27 ; null ; 1024 ; 1 ; 1
e ^ 0.5::double precision => 0.31622776601683794 ; 1e+150 ; 0 ; !a negative number raised to a non-integer power yields a complex result ; null ; 1.4142135623730951 ; 1 ; !a negative number raised to a non-integer power yields a complex result
i = j => false ; false ; false ; false ; null ; false ; false ; false
i < b => false ; false ; true ; false ; null ; true ; false ; true
i <> n => true ; true ; true ; true ; null ; true ; true ; true
n = m => false ; false ; false ; false ; null ; false ; false ; false
n < m => true ; true ; false ; false ; null ; true ; false ; false
d > n => false ; false ; true ; true ; null ; true ; true ; true
d = e => false ; false ; false ; false ; null ; false ; false ; false
f = true => true ; false ; true ; false ; null ; true ; false ; true
t < u => true ; false ; true ; true ; null ; true ; true ; false
t = 'abcabc' => true ; false ; false ; false ; null ; false ; false ; false
'yes' = t => false ; false ; false ; false ; null ; false ; false ; true
i = '7' => true ; false ; false ; false ; null ; false ; false ; false
m = '12.5' => true ; false ; false ; false ; null ; false ; false ; false
dt = '2024-02-29' => true ; false ; false ; false ; null ; false ; false ; false
ts > '2000-01-01' => true ; false ; true ; false ; null ; true ; false ; true
tz >= dt => true ; true ; true ; false ; null ; true ; true ; true
dt < ts => true ; true ; false ; true ; null ; true ; false ; true
i is distinct from j => true ; true ; true ; true ; false ; true ; true ; true
f is not distinct from null => false ; false ; false ; false ; true ; false ; false ; false
f is null => false ; false ; false ; false ; true ; false ; false ; false
f is not null => true ; true ; true ; true ; false ; true ; true ; true
f is true => true ; false ; true ; false ; false ; true ; false ; true
f is not true => false ; true ; false ; true ; true ; false ; true ; false
f is false => false ; true ; false ; true ; false ; false ; true ; false
f is not false => true ; false ; true ; false ; true ; true ; false ; true
not f => false ; true ; false ; true ; null ; false ; true ; false
f and i > 0 => true ; false ; true ; false ; null ; false ; false ; true
f or i > 0 => true ; false ; true ; false ; null ; true ; true ; true
f and 1/j > 0 => false ; false ; !division by zero ; false ; null ; false ; false ; false
f or 1/j > 0 => true ; false ; true ; false ; null ; true ; false ; true
j <> 0 and 1/j > 0 => false ; false ; false ; false ; null ; false ; false ; false
case when j = 0 then 0 else i / j end => 3 ; !integer out of range ; 0 ; 0 ; null ; 0 ; -25 ; 0
case j when 0 then -1 when 2 then i / 0 else i / j end => !division by zero ; !integer out of range ; -1 ; 0 ; null ; 0 ; -25 ; 0
case when i / j > 0 then 'a' else 'b' end => a ; !integer out of range ; !division by zero ; b ; b ; b ; b ; b
case when f then i else n end => 7 ; -2.5 ; 2147483647 ; 0.0000000000000001 ; null ; -3 ; 3000000 ; 3
case when f then m else 1 end => 12.50 ; 1 ; 99999999.99 ; 1 ; 1 ; 33.33 ; 1 ; -7.77
coalesce(f, false) => true ; false ; true ; false ; false ; true ; false ; true
coalesce(m, 0) => 12.50 ; -0.01 ; 99999999.99 ; 0.00 ; 0 ; 33.33 ; 7.77 ; -7.77
coalesce(1/0, i) => !division by zero ; !division by zero ; !division by zero ; !division by zero ; !division by zero ; !division by zero ; !division by zero ; !division by zero
coalesce(nullif(i, 7), j/0) => !division by zero ; -2147483648 ; 2147483647 ; 0 ; null ; -3 ; 100 ; 3
nullif(i, 7) => null ; -2147483648 ; 2147483647 ; 0 ; null ; -3 ; 100 ; 3
nullif(i, b) => null ; -2147483648 ; 2147483647 ; null ; null ; -3 ; 100 ; 3
nullif(t, '') => abcabc ; null ; '  12 ' ; 1e3 ; null ; héllo wörld 日本 ; a%b_c\d ; yes
greatest(i, j) => 7 ; -1 ; 2147483647 ; 3 ; null ; 10 ; 100 ; 3
least(i, b, 5) => 5 ; -9223372036854775808 ; 5 ; 0 ; 5 ; -3 ; 5 ; 3
greatest(n, m, i) => 12.50 ; -0.01 ; 123456789012345.1234567890123456 ; 0.0000000000000001 ; null ; 33.33 ; 3000000 ; 99999
least(d, e) => 0.1 ; -2.5 ; 0 ; -3 ; null ; 1.5 ; 1 ; -1
greatest(t, u) => b ; '' ; % ; \ ; null ; l ; a\%b ; yes
i in (7, 0, -3) => true ; false ; false ; true ; null ; true ; false ; false
t in ('abcabc', 'x') => true ; false ; false ; false ; null ; false ; false ; false
t not in ('abcabc', null) => false ; null ; null ; null ; null ; null ; null ; null
i between 0 and 10 => true ; false ; false ; true ; null ; false ; false ; true
n between m and d => false ; false ; true ; true ; null ; false ; true ; true
i not between j and 5 => true ; true ; true ; true ; null ; true ; true ; false
t || u => abcabcb ; '' ; '  12 %' ; 1e3\ ; null ; héllo wörld 日本l ; a%b_c\da\%b ; yesoff
t || i => abcabc7 ; -2147483648 ; '  12 2147483647' ; 1e30 ; null ; héllo wörld 日本-3 ; a%b_c\d100 ; yes3
i || t => 7abcabc ; -2147483648 ; '2147483647  12 ' ; 01e3 ; null ; -3héllo wörld 日本 ; 100a%b_c\d ; 3yes
t || n => abcabc2.5 ; -2.5 ; '  12 123456789012345.1234567890123456' ; 1e30.0000000000000001 ; null ; héllo wörld 日本-3.7 ; a%b_c\d3000000 ; yes99999
t || m => abcabc12.50 ; -0.01 ; '  12 99999999.99' ; 1e30.00 ; null ; héllo wörld 日本33.33 ; a%b_c\d7.77 ; yes-7.77
t || f => abcabctrue ; false ; '  12 true' ; 1e3false ; null ; héllo wörld 日本true ; a%b_c\dfalse ; yestrue
t || dt => abcabc2024-02-29 ; 1999-12-31 ; '  12 2021-01-03' ; 1e31970-01-01 ; null ; héllo wörld 日本2024-12-30 ; a%b_c\d0001-01-01 ; yes9999-12-31
t || ts => abcabc2024-02-29 13:45:06.5 ; 1999-12-31 23:59:59 ; '  12 2021-01-03 00:00:00' ; 1e31970-01-01 00:00:00.000001 ; null ; héllo wörld 日本2024-12-30 01:02:03.04 ; a%b_c\d0001-01-01 00:00:00 ; yes9999-12-31 23:59:59.999999
t || tz => abcabc2024-02-29 13:45:06.123456+00 ; 1999-12-31 23:59:59+00 ; '  12 2021-01-03 00:00:00+00' ; 1e31969-12-31 23:59:59.999999+00 ; null ; héllo wörld 日本2024-12-30 01:02:03.04+00 ; a%b_c\d0001-01-01 00:00:00+00 ; yes9999-12-31 23:59:59.999999+00
lower(t) => abcabc ; '' ; '  12 ' ; 1e3 ; null ; héllo wörld 日本 ; a%b_c\d ; yes
upper(t) => ABCABC ; '' ; '  12 ' ; 1E3 ; null ; HÉLLO WÖRLD 日本 ; A%B_C\D ; YES
length(t) => 6 ; 0 ; 5 ; 3 ; null ; 14 ; 7 ; 3
char_length(t) => 6 ; 0 ; 5 ; 3 ; null ; 14 ; 7 ; 3
substring(t, 2) => bcabc ; '' ; ' 12 ' ; e3 ; null ; éllo wörld 日本 ; %b_c\d ; es
substring(t, 2, 3) => bca ; '' ; ' 12' ; e3 ; null ; éll ; %b_ ; es
substring(t from 2 for 3) => bca ; '' ; ' 12' ; e3 ; null ; éll ; %b_ ; es
substring(t from -1 for 3) => a ; '' ; ' ' ; 1 ; null ; h ; a ; y
substring(t, i, j) => '' ; !negative substring length not allowed ; '' ; 1e ; null ; 'héllo ' ; !negative substring length not allowed ; !negative substring length not allowed
substring(t, j, s) => bcabc ; !negative substring length not allowed ; '  12 ' ; '' ; null ; !negative substring length not allowed ; '' ; ''
substr(t, j) => bcabc ; '' ; '  12 ' ; 3 ; null ; ld 日本 ; a%b_c\d ; yes
substring(t, 0) => abcabc ; '' ; '  12 ' ; 1e3 ; null ; héllo wörld 日本 ; a%b_c\d ; yes
trim(t) => abcabc ; '' ; 12 ; 1e3 ; null ; héllo wörld 日本 ; a%b_c\d ; yes
ltrim(t) => abcabc ; '' ; '12 ' ; 1e3 ; null ; héllo wörld 日本 ; a%b_c\d ; yes
rtrim(t) => abcabc ; '' ; '  12' ; 1e3 ; null ; héllo wörld 日本 ; a%b_c\d ; yes
btrim(t, 'ab ') => cabc ; '' ; 12 ; 1e3 ; null ; héllo wörld 日本 ; %b_c\d ; yes
ltrim(t, u) => abcabc ; '' ; '  12 ' ; 1e3 ; null ; héllo wörld 日本 ; _c\d ; yes
rtrim(t, 'c') => abcab ; '' ; '  12 ' ; 1e3 ; null ; héllo wörld 日本 ; a%b_c\d ; yes
trim(both 'a' from t) => bcabc ; '' ; '  12 ' ; 1e3 ; null ; héllo wörld 日本 ; %b_c\d ; yes
trim(leading from t) => abcabc ; '' ; '12 ' ; 1e3 ; null ; héllo wörld 日本 ; a%b_c\d ; yes
replace(t, u, 'X') => aXcaXc ; '' ; '  12 ' ; 1e3 ; null ; héXXo wörXd 日本 ; a%b_c\d ; yes
replace(t, 'b', '') => acac ; '' ; '  12 ' ; 1e3 ; null ; héllo wörld 日本 ; a%_c\d ; yes
replace(t, '', 'x') => abcabc ; '' ; '  12 ' ; 1e3 ; null ; héllo wörld 日本 ; a%b_c\d ; yes
left(t, 2) => ab ; '' ; '  ' ; 1e ; null ; hé ; a% ; ye
left(t, -2) => abca ; '' ; '  1' ; 1 ; null ; 'héllo wörld ' ; a%b_c ; y
left(t, i) => abcabc ; '' ; '  12 ' ; '' ; null ; héllo wörld ; a%b_c\d ; yes
right(t, 2) => bc ; '' ; '2 ' ; e3 ; null ; 日本 ; \d ; es
right(t, -2) => cabc ; '' ; '12 ' ; 3 ; null ; llo wörld 日本 ; b_c\d ; s
right(t, i) => abcabc ; '' ; '  12 ' ; '' ; null ; lo wörld 日本 ; a%b_c\d ; yes
strpos(t, u) => 2 ; 1 ; 0 ; 0 ; null ; 3 ; 0 ; 0
strpos(t, '') => 1 ; 1 ; 1 ; 1 ; null ; 1 ; 1 ; 1
position('b' in t) => 2 ; 0 ; 0 ; 0 ; null ; 0 ; 3 ; 0
position(u in t) => 2 ; 1 ; 0 ; 0 ; null ; 3 ; 0 ; 0
starts_with(t, 'a') => true ; false ; false ; false ; null ; false ; true ; false
starts_with(t, u) => false ; true ; false ; false ; null ; false ; false ; false
split_part(t, 'b', 2) => ca ; '' ; '' ; '' ; null ; '' ; _c\d ; ''
split_part(t, 'b', -1) => c ; '' ; '  12 ' ; 1e3 ; null ; héllo wörld 日本 ; _c\d ; yes
split_part(t, u, 1) => a ; '' ; '  12 ' ; 1e3 ; null ; hé ; a%b_c\d ; yes
split_part(t, 'b', j) => ca ; '' ; !field position must not be zero ; '' ; null ; '' ; '' ; ''
split_part(t, '', 1) => abcabc ; '' ; '  12 ' ; 1e3 ; null ; héllo wörld 日本 ; a%b_c\d ; yes
split_part(t, '', 2) => '' ; '' ; '' ; '' ; null ; '' ; '' ; ''
t like 'a%' => true ; false ; false ; false ; null ; false ; true ; false
t like '%b\_c%' => false ; false ; false ; false ; null ; false ; true ; false
t like 'a\%b\_c\\d' => false ; false ; false ; false ; null ; false ; true ; false
t like '_bc%' => true ; false ; false ; false ; null ; false ; false ; false
t like u => false ; true ; true ; !LIKE pattern must not end with escape character ; null ; false ; false ; false
t ilike 'ABC%' => true ; false ; false ; false ; null ; false ; false ; false
t not like '%a%' => false ; true ; true ; true ; null ; true ; false ; true
t not ilike '%A%' => false ; true ; true ; true ; null ; true ; false ; true
t like 'a\bc%' => true ; false ; false ; false ; null ; false ; false ; false
t like 'x!%' escape '!' => false ; false ; false ; false ; null ; false ; false ; false
t like '%!_c\d' escape '!' => false ; false ; false ; false ; null ; false ; true ; false
extract(year from dt) => 2024 ; 1999 ; 2021 ; 1970 ; null ; 2024 ; 1 ; 9999
extract(year from ts) => 2024 ; 1999 ; 2021 ; 1970 ; null ; 2024 ; 1 ; 9999
extract(month from tz) => 2 ; 12 ; 1 ; 12 ; null ; 12 ; 1 ; 12
extract(day from ts) => 29 ; 31 ; 3 ; 1 ; null ; 30 ; 1 ; 31
extract(hour from ts) => 13 ; 23 ; 0 ; 0 ; null ; 1 ; 0 ; 23
extract(minute from ts) => 45 ; 59 ; 0 ; 0 ; null ; 2 ; 0 ; 59
extract(second from ts) => 6.500000 ; 59.000000 ; 0.000000 ; 0.000001 ; null ; 3.040000 ; 0.000000 ; 59.999999
extract(epoch from ts) => 1709214306.500000 ; 946684799.000000 ; 1609632000.000000 ; 0.000001 ; null ; 1735520523.040000 ; -62135596800.000000 ; 253402300799.999999
extract(epoch from tz) => 1709214306.123456 ; 946684799.000000 ; 1609632000.000000 ; -0.000001 ; null ; 1735520523.040000 ; -62135596800.000000 ; 253402300799.999999
extract(epoch from dt) => 1709164800 ; 946598400 ; 1609632000 ; 0 ; null ; 1735516800 ; -62135596800 ; 253402214400
extract(dow from ts) => 4 ; 5 ; 0 ; 4 ; null ; 1 ; 1 ; 5
extract(dow from dt) => 4 ; 5 ; 0 ; 4 ; null ; 1 ; 1 ; 5
extract(doy from ts) => 60 ; 365 ; 3 ; 1 ; null ; 365 ; 1 ; 365
extract(week from dt) => 9 ; 52 ; 53 ; 1 ; null ; 1 ; 1 ; 52
extract(week from ts) => 9 ; 52 ; 53 ; 1 ; null ; 1 ; 1 ; 52
extract(quarter from ts) => 1 ; 4 ; 1 ; 1 ; null ; 4 ; 1 ; 4
extract(isodow from ts) => 4 ; 5 ; 7 ; 4 ; null ; 1 ; 1 ; 5
date_part('year', ts) => 2024 ; 1999 ; 2021 ; 1970 ; null ; 2024 ; 1 ; 9999
date_part('epoch', ts) => 1709214306.5 ; 946684799 ; 1609632000 ; 1e-06 ; null ; 1735520523.04 ; -62135596800 ; 253402300800
date_part('second', tz) => 6.123456 ; 59 ; 0 ; 59.999999 ; null ; 3.04 ; 0 ; 59.999999
date_trunc('year', ts) => 2024-01-01 00:00:00 ; 1999-01-01 00:00:00 ; 2021-01-01 00:00:00 ; 1970-01-01 00:00:00 ; null ; 2024-01-01 00:00:00 ; 0001-01-01 00:00:00 ; 9999-01-01 00:00:00
date_trunc('quarter', ts) => 2024-01-01 00:00:00 ; 1999-10-01 00:00:00 ; 2021-01-01 00:00:00 ; 1970-01-01 00:00:00 ; null ; 2024-10-01 00:00:00 ; 0001-01-01 00:00:00 ; 9999-10-01 00:00:00
date_trunc('month', tz) => 2024-02-01 00:00:00+00 ; 1999-12-01 00:00:00+00 ; 2021-01-01 00:00:00+00 ; 1969-12-01 00:00:00+00 ; null ; 2024-12-01 00:00:00+00 ; 0001-01-01 00:00:00+00 ; 9999-12-01 00:00:00+00
date_trunc('week', ts) => 2024-02-26 00:00:00 ; 1999-12-27 00:00:00 ; 2020-12-28 00:00:00 ; 1969-12-29 00:00:00 ; null ; 2024-12-30 00:00:00 ; 0001-01-01 00:00:00 ; 9999-12-27 00:00:00
date_trunc('day', tz) => 2024-02-29 00:00:00+00 ; 1999-12-31 00:00:00+00 ; 2021-01-03 00:00:00+00 ; 1969-12-31 00:00:00+00 ; null ; 2024-12-30 00:00:00+00 ; 0001-01-01 00:00:00+00 ; 9999-12-31 00:00:00+00
date_trunc('hour', ts) => 2024-02-29 13:00:00 ; 1999-12-31 23:00:00 ; 2021-01-03 00:00:00 ; 1970-01-01 00:00:00 ; null ; 2024-12-30 01:00:00 ; 0001-01-01 00:00:00 ; 9999-12-31 23:00:00
date_trunc('minute', ts) => 2024-02-29 13:45:00 ; 1999-12-31 23:59:00 ; 2021-01-03 00:00:00 ; 1970-01-01 00:00:00 ; null ; 2024-12-30 01:02:00 ; 0001-01-01 00:00:00 ; 9999-12-31 23:59:00
date_trunc('second', ts) => 2024-02-29 13:45:06 ; 1999-12-31 23:59:59 ; 2021-01-03 00:00:00 ; 1970-01-01 00:00:00 ; null ; 2024-12-30 01:02:03 ; 0001-01-01 00:00:00 ; 9999-12-31 23:59:59
date_trunc('milliseconds', tz) => 2024-02-29 13:45:06.123+00 ; 1999-12-31 23:59:59+00 ; 2021-01-03 00:00:00+00 ; 1969-12-31 23:59:59.999+00 ; null ; 2024-12-30 01:02:03.04+00 ; 0001-01-01 00:00:00+00 ; 9999-12-31 23:59:59.999+00
date_trunc('day', dt) => 2024-02-29 00:00:00+00 ; 1999-12-31 00:00:00+00 ; 2021-01-03 00:00:00+00 ; 1970-01-01 00:00:00+00 ; null ; 2024-12-30 00:00:00+00 ; 0001-01-01 00:00:00+00 ; 9999-12-31 00:00:00+00
dt - dt => 0 ; 0 ; 0 ; 0 ; null ; 0 ; 0 ; 0
dt - date '2000-01-01' => 8825 ; -1 ; 7673 ; -10957 ; null ; 9130 ; -730119 ; 2921939
f::int => 1 ; 0 ; 1 ; 0 ; null ; 1 ; 0 ; 1
f::text => true ; false ; true ; false ; null ; true ; false ; true
i::boolean => true ; true ; true ; false ; null ; true ; true ; true
i::smallint => 7 ; !smallint out of range ; !smallint out of range ; 0 ; null ; -3 ; 100 ; 3
i::bigint => 7 ; -2147483648 ; 2147483647 ; 0 ; null ; -3 ; 100 ; 3
i::numeric => 7 ; -2147483648 ; 2147483647 ; 0 ; null ; -3 ; 100 ; 3
i::numeric(3,0) => 7 ; !numeric field overflow ; !numeric field overflow ; 0 ; null ; -3 ; 100 ; 3
i::numeric(5,2) => 7.00 ; !numeric field overflow ; !numeric field overflow ; 0.00 ; null ; -3.00 ; 100.00 ; 3.00
i::double precision => 7 ; -2147483648 ; 2147483647 ; 0 ; null ; -3 ; 100 ; 3
i::text => 7 ; -2147483648 ; 2147483647 ; 0 ; null ; -3 ; 100 ; 3
b::int => 7 ; !integer out of range ; !integer out of range ; 0 ; null ; 1000000007 ; 5 ; 5
b::smallint => 7 ; !smallint out of range ; !smallint out of range ; 0 ; null ; !smallint out of range ; 5 ; 5
b::numeric => 7 ; -9223372036854775808 ; 9223372036854775807 ; 0 ; null ; 1000000007 ; 5 ; 5
b::numeric(5,2) => 7.00 ; !numeric field overflow ; !numeric field overflow ; 0.00 ; null ; !numeric field overflow ; 5.00 ; 5.00
b::double precision => 7 ; -9.223372036854776e+18 ; 9.223372036854776e+18 ; 0 ; null ; 1000000007 ; 5 ; 5
b::text => 7 ; -9223372036854775808 ; 9223372036854775807 ; 0 ; null ; 1000000007 ; 5 ; 5
s::text => 7 ; -32768 ; 32767 ; 0 ; null ; -3 ; 2 ; 2
n::int => 3 ; -3 ; !integer out of range ; 0 ; null ; -4 ; 3000000 ; 99999
n::smallint => 3 ; -3 ; !smallint out of range ; 0 ; null ; -4 ; !smallint out of range ; !smallint out of range
n::bigint => 3 ; -3 ; 123456789012345 ; 0 ; null ; -4 ; 3000000 ; 99999
m::int => 13 ; 0 ; 100000000 ; 0 ; null ; 33 ; 8 ; -8
n::numeric(5,1) => 2.5 ; -2.5 ; !numeric field overflow ; 0.0 ; null ; -3.7 ; !numeric field overflow ; !numeric field overflow
n::numeric(20,4) => 2.5000 ; -2.5000 ; 123456789012345.1235 ; 0.0000 ; null ; -3.7000 ; 3000000.0000 ; 99999.0000
m::numeric => 12.50 ; -0.01 ; 99999999.99 ; 0.00 ; null ; 33.33 ; 7.77 ; -7.77
m::numeric(3,1) => 12.5 ; 0.0 ; !numeric field overflow ; 0.0 ; null ; 33.3 ; 7.8 ; -7.8
n::double precision => 2.5 ; -2.5 ; 123456789012345.12 ; 1e-16 ; null ; -3.7 ; 3000000 ; 99999
n::text => 2.5 ; -2.5 ; 123456789012345.1234567890123456 ; 0.0000000000000001 ; null ; -3.7 ; 3000000 ; 99999
m::text => 12.50 ; -0.01 ; 99999999.99 ; 0.00 ; null ; 33.33 ; 7.77 ; -7.77
(m*m)::text => 156.2500 ; 0.0001 ; 9999999998000000.0001 ; 0.0000 ; null ; 1110.8889 ; 60.3729 ; 60.3729
d::int => 2 ; -2 ; !integer out of range ; 0 ; null ; 2 ; !integer out of range ; !integer out of range
d::bigint => 2 ; -2 ; !bigint out of range ; 0 ; null ; 2 ; !bigint out of range ; !bigint out of range
e::int => 0 ; !integer out of range ; 0 ; -3 ; null ; 2 ; 1 ; -1
d::smallint => 2 ; -2 ; !smallint out of range ; 0 ; null ; 2 ; !smallint out of range ; !smallint out of range
e::numeric(10,3) => 0.100 ; !numeric field overflow ; 0.000 ; -3.000 ; null ; 2.000 ; 1.000 ; -1.000
t::int => !invalid input syntax for type integer: "abcabc" ; !invalid input syntax for type integer: "" ; 12 ; !invalid input syntax for type integer: "1e3" ; null ; !invalid input syntax for type integer: "héllo wörld 日本" ; !invalid input syntax for type integer: "a%b_c\d" ; !invalid input syntax for type integer: "yes"
t::bigint => !invalid input syntax for type bigint: "abcabc" ; !invalid input syntax for type bigint: "" ; 12 ; !invalid input syntax for type bigint: "1e3" ; null ; !invalid input syntax for type bigint: "héllo wörld 日本" ; !invalid input syntax for type bigint: "a%b_c\d" ; !invalid input syntax for type bigint: "yes"
t::smallint => !invalid input syntax for type smallint: "abcabc" ; !invalid input syntax for type smallint: "" ; 12 ; !invalid input syntax for type smallint: "1e3" ; null ; !invalid input syntax for type smallint: "héllo wörld 日本" ; !invalid input syntax for type smallint: "a%b_c\d" ; !invalid input syntax for type smallint: "yes"
t::numeric => !invalid input syntax for type numeric: "abcabc" ; !invalid input syntax for type numeric: "" ; 12 ; 1000 ; null ; !invalid input syntax for type numeric: "héllo wörld 日本" ; !invalid input syntax for type numeric: "a%b_c\d" ; !invalid input syntax for type numeric: "yes"
t::numeric(4,1) => !invalid input syntax for type numeric: "abcabc" ; !invalid input syntax for type numeric: "" ; 12.0 ; !numeric field overflow ; null ; !invalid input syntax for type numeric: "héllo wörld 日本" ; !invalid input syntax for type numeric: "a%b_c\d" ; !invalid input syntax for type numeric: "yes"
t::double precision => !invalid input syntax for type double precision: "abcabc" ; !invalid input syntax for type double precision: "" ; 12 ; 1000 ; null ; !invalid input syntax for type double precision: "héllo wörld 日本" ; !invalid input syntax for type double precision: "a%b_c\d" ; !invalid input syntax for type double precision: "yes"
u::boolean => !invalid input syntax for type boolean: "b" ; !invalid input syntax for type boolean: "" ; !invalid input syntax for type boolean: "%" ; !invalid input syntax for type boolean: "\" ; null ; !invalid input syntax for type boolean: "l" ; !invalid input syntax for type boolean: "a\%b" ; false
t::boolean => !invalid input syntax for type boolean: "abcabc" ; !invalid input syntax for type boolean: "" ; !invalid input syntax for type boolean: "  12 " ; !invalid input syntax for type boolean: "1e3" ; null ; !invalid input syntax for type boolean: "héllo wörld 日本" ; !invalid input syntax for type boolean: "a%b_c\d" ; true
t::date => !invalid input syntax for type date: "abcabc" ; !invalid input syntax for type date: "" ; !invalid input syntax for type date: "  12 " ; !invalid input syntax for type date: "1e3" ; null ; !invalid input syntax for type date: "héllo wörld 日本" ; !invalid input syntax for type date: "a%b_c\d" ; !invalid input syntax for type date: "yes"
t::timestamp => !invalid input syntax for type timestamp: "abcabc" ; !invalid input syntax for type timestamp: "" ; !invalid input syntax for type timestamp: "  12 " ; !invalid input syntax for type timestamp: "1e3" ; null ; !invalid input syntax for type timestamp: "héllo wörld 日本" ; !invalid input syntax for type timestamp: "a%b_c\d" ; !invalid input syntax for type timestamp: "yes"
t::timestamptz => !invalid input syntax for type timestamp with time zone: "abcabc" ; !invalid input syntax for type timestamp with time zone: "" ; !invalid input syntax for type timestamp with time zone: "  12 " ; !invalid input syntax for type timestamp with time zone: "1e3" ; null ; !invalid input syntax for type timestamp with time zone: "héllo wörld 日本" ; !invalid input syntax for type timestamp with time zone: "a%b_c\d" ; !invalid input syntax for type timestamp with time zone: "yes"
(dt::text)::date => 2024-02-29 ; 1999-12-31 ; 2021-01-03 ; 1970-01-01 ; null ; 2024-12-30 ; 0001-01-01 ; 9999-12-31
(ts::text)::timestamp => 2024-02-29 13:45:06.5 ; 1999-12-31 23:59:59 ; 2021-01-03 00:00:00 ; 1970-01-01 00:00:00.000001 ; null ; 2024-12-30 01:02:03.04 ; 0001-01-01 00:00:00 ; 9999-12-31 23:59:59.999999
(tz::text)::timestamptz => 2024-02-29 13:45:06.123456+00 ; 1999-12-31 23:59:59+00 ; 2021-01-03 00:00:00+00 ; 1969-12-31 23:59:59.999999+00 ; null ; 2024-12-30 01:02:03.04+00 ; 0001-01-01 00:00:00+00 ; 9999-12-31 23:59:59.999999+00
(tz::text)::timestamp => 2024-02-29 13:45:06.123456 ; 1999-12-31 23:59:59 ; 2021-01-03 00:00:00 ; 1969-12-31 23:59:59.999999 ; null ; 2024-12-30 01:02:03.04 ; 0001-01-01 00:00:00 ; 9999-12-31 23:59:59.999999
(dt::text || ' 10:30')::timestamp => 2024-02-29 10:30:00 ; 1999-12-31 10:30:00 ; 2021-01-03 10:30:00 ; 1970-01-01 10:30:00 ; null ; 2024-12-30 10:30:00 ; 0001-01-01 10:30:00 ; 9999-12-31 10:30:00
(dt::text || 'T10:30:15Z')::timestamptz => 2024-02-29 10:30:15+00 ; 1999-12-31 10:30:15+00 ; 2021-01-03 10:30:15+00 ; 1970-01-01 10:30:15+00 ; null ; 2024-12-30 10:30:15+00 ; 0001-01-01 10:30:15+00 ; 9999-12-31 10:30:15+00
(dt::text || ' 10:30:15+05:30')::timestamptz => 2024-02-29 05:00:15+00 ; 1999-12-31 05:00:15+00 ; 2021-01-03 05:00:15+00 ; 1970-01-01 05:00:15+00 ; null ; 2024-12-30 05:00:15+00 ; 0001-01-01 05:00:15+00 ; 9999-12-31 05:00:15+00
(dt::text || ' 10:30:15-08')::timestamptz => 2024-02-29 18:30:15+00 ; 1999-12-31 18:30:15+00 ; 2021-01-03 18:30:15+00 ; 1970-01-01 18:30:15+00 ; null ; 2024-12-30 18:30:15+00 ; 0001-01-01 18:30:15+00 ; 9999-12-31 18:30:15+00
(dt::text || ' 10:30:15-08')::timestamp => 2024-02-29 10:30:15 ; 1999-12-31 10:30:15 ; 2021-01-03 10:30:15 ; 1970-01-01 10:30:15 ; null ; 2024-12-30 10:30:15 ; 0001-01-01 10:30:15 ; 9999-12-31 10:30:15
('2024-02-' || (30 + coalesce(s,0) * 0))::date => !date/time field value out of range: "2024-02-30" ; !date/time field value out of range: "2024-02-30" ; !date/time field value out of range: "2024-02-30" ; !date/time field value out of range: "2024-02-30" ; !date/time field value out of range: "2024-02-30" ; !date/time field value out of range: "2024-02-30" ; !date/time field value out of range: "2024-02-30" ; !date/time field value out of range: "2024-02-30"
('2024-13-01' || left(t,0))::timestamp => !date/time field value out of range: "2024-13-01" ; !date/time field value out of range: "2024-13-01" ; !date/time field value out of range: "2024-13-01" ; !date/time field value out of range: "2024-13-01" ; null ; !date/time field value out of range: "2024-13-01" ; !date/time field value out of range: "2024-13-01" ; !date/time field value out of range: "2024-13-01"
('1e400' || left(t,0))::double precision => !"1e400" is out of range for type double precision ; !"1e400" is out of range for type double precision ; !"1e400" is out of range for type double precision ; !"1e400" is out of range for type double precision ; null ; !"1e400" is out of range for type double precision ; !"1e400" is out of range for type double precision ; !"1e400" is out of range for type double precision
('99999999999' || left(t,0))::int => !value "99999999999" is out of range for type integer ; !value "99999999999" is out of range for type integer ; !value "99999999999" is out of range for type integer ; !value "99999999999" is out of range for type integer ; null ; !value "99999999999" is out of range for type integer ; !value "99999999999" is out of range for type integer ; !value "99999999999" is out of range for type integer
('inf' || left(t,0))::double precision => Infinity ; Infinity ; Infinity ; Infinity ; null ; Infinity ; Infinity ; Infinity
('1d' || left(t,0))::double precision => !invalid input syntax for type double precision: "1d" ; !invalid input syntax for type double precision: "1d" ; !invalid input syntax for type double precision: "1d" ; !invalid input syntax for type double precision: "1d" ; null ; !invalid input syntax for type double precision: "1d" ; !invalid input syntax for type double precision: "1d" ; !invalid input syntax for type double precision: "1d"
(' +5 ' || left(t,0))::int => 5 ; 5 ; 5 ; 5 ; null ; 5 ; 5 ; 5
('5.5' || left(t,0))::int => !invalid input syntax for type integer: "5.5" ; !invalid input syntax for type integer: "5.5" ; !invalid input syntax for type integer: "5.5" ; !invalid input syntax for type integer: "5.5" ; null ; !invalid input syntax for type integer: "5.5" ; !invalid input syntax for type integer: "5.5" ; !invalid input syntax for type integer: "5.5"
('.5' || left(t,0))::numeric => 0.5 ; 0.5 ; 0.5 ; 0.5 ; null ; 0.5 ; 0.5 ; 0.5
('-1.25e2' || left(t,0))::numeric(10,1) => -125.0 ; -125.0 ; -125.0 ; -125.0 ; null ; -125.0 ; -125.0 ; -125.0
('tRu' || left(t,0))::boolean => true ; true ; true ; true ; null ; true ; true ; true
dt::timestamp => 2024-02-29 00:00:00 ; 1999-12-31 00:00:00 ; 2021-01-03 00:00:00 ; 1970-01-01 00:00:00 ; null ; 2024-12-30 00:00:00 ; 0001-01-01 00:00:00 ; 9999-12-31 00:00:00
dt::timestamptz => 2024-02-29 00:00:00+00 ; 1999-12-31 00:00:00+00 ; 2021-01-03 00:00:00+00 ; 1970-01-01 00:00:00+00 ; null ; 2024-12-30 00:00:00+00 ; 0001-01-01 00:00:00+00 ; 9999-12-31 00:00:00+00
dt::text => 2024-02-29 ; 1999-12-31 ; 2021-01-03 ; 1970-01-01 ; null ; 2024-12-30 ; 0001-01-01 ; 9999-12-31
ts::date => 2024-02-29 ; 1999-12-31 ; 2021-01-03 ; 1970-01-01 ; null ; 2024-12-30 ; 0001-01-01 ; 9999-12-31
ts::timestamptz => 2024-02-29 13:45:06.5+00 ; 1999-12-31 23:59:59+00 ; 2021-01-03 00:00:00+00 ; 1970-01-01 00:00:00.000001+00 ; null ; 2024-12-30 01:02:03.04+00 ; 0001-01-01 00:00:00+00 ; 9999-12-31 23:59:59.999999+00
ts::text => 2024-02-29 13:45:06.5 ; 1999-12-31 23:59:59 ; 2021-01-03 00:00:00 ; 1970-01-01 00:00:00.000001 ; null ; 2024-12-30 01:02:03.04 ; 0001-01-01 00:00:00 ; 9999-12-31 23:59:59.999999
tz::date => 2024-02-29 ; 1999-12-31 ; 2021-01-03 ; 1969-12-31 ; null ; 2024-12-30 ; 0001-01-01 ; 9999-12-31
tz::timestamp => 2024-02-29 13:45:06.123456 ; 1999-12-31 23:59:59 ; 2021-01-03 00:00:00 ; 1969-12-31 23:59:59.999999 ; null ; 2024-12-30 01:02:03.04 ; 0001-01-01 00:00:00 ; 9999-12-31 23:59:59.999999
tz::text => 2024-02-29 13:45:06.123456+00 ; 1999-12-31 23:59:59+00 ; 2021-01-03 00:00:00+00 ; 1969-12-31 23:59:59.999999+00 ; null ; 2024-12-30 01:02:03.04+00 ; 0001-01-01 00:00:00+00 ; 9999-12-31 23:59:59.999999+00
2.5::int => 3 ; 3 ; 3 ; 3 ; 3 ; 3 ; 3 ; 3
-2.5::int => -3 ; -3 ; -3 ; -3 ; -3 ; -3 ; -3 ; -3
(-2.5)::int => -3 ; -3 ; -3 ; -3 ; -3 ; -3 ; -3 ; -3
(2.5::double precision)::int => 2 ; 2 ; 2 ; 2 ; 2 ; 2 ; 2 ; 2
'5'::int + 1 => 6 ; 6 ; 6 ; 6 ; 6 ; 6 ; 6 ; 6
'2020-01-01'::date + 1 => 2020-01-02 ; 2020-01-02 ; 2020-01-02 ; 2020-01-02 ; 2020-01-02 ; 2020-01-02 ; 2020-01-02 ; 2020-01-02
-2147483648 => -2147483648 ; -2147483648 ; -2147483648 ; -2147483648 ; -2147483648 ; -2147483648 ; -2147483648 ; -2147483648
1e3 => 1000 ; 1000 ; 1000 ; 1000 ; 1000 ; 1000 ; 1000 ; 1000
1.50 * 2.00 => 3.0000 ; 3.0000 ; 3.0000 ; 3.0000 ; 3.0000 ; 3.0000 ; 3.0000 ; 3.0000
7 / 2 => 3 ; 3 ; 3 ; 3 ; 3 ; 3 ; 3 ; 3
7 / 2.0 => 3.5000000000000000 ; 3.5000000000000000 ; 3.5000000000000000 ; 3.5000000000000000 ; 3.5000000000000000 ; 3.5000000000000000 ; 3.5000000000000000 ; 3.5000000000000000
-7 / 2 => -3 ; -3 ; -3 ; -3 ; -3 ; -3 ; -3 ; -3
-7 % 3 => -1 ; -1 ; -1 ; -1 ; -1 ; -1 ; -1 ; -1
2 ^ 3 => 8 ; 8 ; 8 ; 8 ; 8 ; 8 ; 8 ; 8
null + 1 => null ; null ; null ; null ; null ; null ; null ; null
null::int + 1 => null ; null ; null ; null ; null ; null ; null ; null
'a' || null => null ; null ; null ; null ; null ; null ; null ; null
1 = 1.0 => true ; true ; true ; true ; true ; true ; true ; true
1 = '1' => true ; true ; true ; true ; true ; true ; true ; true
true and null => null ; null ; null ; null ; null ; null ; null ; null
n * o * n => 1.875 ; 6250000.771250 ; 0.00000000000000000000000000000000 ; 0.000000000000000000000000001234567890123456 ; null ; -0.000000000000009583 ; 27000000000000 ; 69998600007
(n + o) / (n - o) => 1.27272727272727272727 ; -0.99999500001311696559 ; 1.00000000000000000000 ; -1.00000000000000000000 ; null ; 1.00000000000000037838 ; 1.0000020000020000 ; 1.0001400112008961
1 / 1234567.12345678 => 0.000000810000510300328131 ; 0.000000810000510300328131 ; 0.000000810000510300328131 ; 0.000000810000510300328131 ; 0.000000810000510300328131 ; 0.000000810000510300328131 ; 0.000000810000510300328131 ; 0.000000810000510300328131
1000000 / 0.3333333333333333 => 3000000.0000000003000000 ; 3000000.0000000003000000 ; 3000000.0000000003000000 ; 3000000.0000000003000000 ; 3000000.0000000003000000 ; 3000000.0000000003000000 ; 3000000.0000000003000000 ; 3000000.0000000003000000
n / 12345678901.123456789 => 0.0000000002025000018243225165 ; -0.0000000002025000018243225165 ; 10000.0000000899550017 ; 0.00000000000000000000000000810000007297290066 ; null ; -0.0000000002997000026999973244 ; 0.00024300000218918702 ; 0.000008099919072972170929
2 / 3.0 => 0.66666666666666666667 ; 0.66666666666666666667 ; 0.66666666666666666667 ; 0.66666666666666666667 ; 0.66666666666666666667 ; 0.66666666666666666667 ; 0.66666666666666666667 ; 0.66666666666666666667
"""

OURS = r"""
n / o => 8.3333333333333333 ; -0.0000024999996915 ; !division by zero ; 0.0000000000000000 ; null ; 5285714285714285.7142857142857143 ; 1000000.0000000000000000 ; 14285.5714285714285714
m * n => 31.2500000000000000 ; 0.0250000000000000 ; !numeric field overflow ; 0.0000000000000000 ; null ; -123.3210000000000000 ; 23310000.0000000000000000 ; -776992.2300000000000000
n * m => 31.2500000000000000 ; 0.0250000000000000 ; !numeric field overflow ; 0.0000000000000000 ; null ; -123.3210000000000000 ; 23310000.0000000000000000 ; -776992.2300000000000000
n / m => 0.2000000000000000 ; 250.0000000000000000 ; 1234567.8902469080235926 ; !division by zero ; null ; -0.1110111011101110 ; 386100.3861003861003861 ; -12869.8841698841698842
n * i => 17.5000000000000000 ; 5368709120.0000000000000000 ; !numeric field overflow ; 0.0000000000000000 ; null ; 11.1000000000000000 ; 300000000.0000000000000000 ; 299997.0000000000000000
b / n => 2.8000000000000000 ; 3689348814741910323.2000000000000000 ; 74709.3141709078477668 ; 0.0000000000000000 ; null ; -270270272.1621621621621622 ; 0.0000016666666667 ; 0.0000500005000050
i/j > 0 or j = 0 => true ; !integer out of range ; true ; false ; null ; false ; false ; false
coalesce(i, 1/0) => 7 ; -2147483648 ; 2147483647 ; 0 ; !division by zero ; -3 ; 100 ; 3
dt + 1 => 2024-03-01 ; 2000-01-01 ; 2021-01-04 ; 1970-01-02 ; null ; 2024-12-31 ; 0001-01-02 ; !date out of range
1 + dt => 2024-03-01 ; 2000-01-01 ; 2021-01-04 ; 1970-01-02 ; null ; 2024-12-31 ; 0001-01-02 ; !date out of range
dt - 1 => 2024-02-28 ; 1999-12-30 ; 2021-01-02 ; 1969-12-31 ; null ; 2024-12-29 ; !date out of range ; 9999-12-30
dt + i => 2024-03-07 ; !date out of range ; !date out of range ; 1970-01-01 ; null ; 2024-12-27 ; 0001-04-11 ; !date out of range
(n/3)::text => 0.8333333333333333 ; -0.8333333333333333 ; 41152263004115.0411522630041152 ; 0 ; null ; -1.2333333333333333 ; 1000000 ; 33333
d::numeric => 2.5000000000000000 ; -2.5000000000000000 ; !numeric field overflow ; 0.5000000000000000 ; null ; 1.5000000000000000 ; !numeric field overflow ; !numeric field overflow
(d/3)::numeric => 0.8333333333333330 ; -0.8333333333333330 ; !numeric field overflow ; 0.1666666666666670 ; null ; 0.5000000000000000 ; !numeric field overflow ; !numeric field overflow
('1e39' || left(t,0))::numeric => !numeric field overflow ; !numeric field overflow ; !numeric field overflow ; !numeric field overflow ; null ; !numeric field overflow ; !numeric field overflow ; !numeric field overflow
n / o / m => 0.6666666666666667 ; 0.0002499999691500 ; !division by zero ; !division by zero ; null ; 158587287300158.5872873001585873 ; 128700.1287001287001287 ; -1838.5548814120242692
n / (o * o) => 27.7777777777777778 ; -0.0000000000025000 ; !division by zero ; 0.0000000000000000 ; null ; !division by zero ; 333333.3333333333333333 ; 2040.7959183673469388
(n / 3) * (o / 7) => 0.0357142857142857 ; -119047.6337380952333333 ; 0.0000000000000000 ; 0.0000000000000000 ; null ; 0.0000000000000001 ; 428571.4285714286000000 ; 33333.0000000000000000
"""

BATCH = 12


class Catalog:
    def resolve(self, parts: tuple[str, ...]) -> Get:
        return Get("t", COLUMNS)


def cells(line: str) -> list[str | None]:
    found: list[str | None] = []
    for cell in line.split(" ; "):
        quoted = len(cell) > 1 and cell[0] == cell[-1] == "'"
        found.append(None if cell == "null" else cell[1:-1] if quoted else cell)
    return found


def cases(table: str) -> dict[str, list[str | None]]:
    lines = [line.rpartition(" => ") for line in table.strip().split("\n")]
    return {expr: cells(expected) for expr, _, expected in lines}


def batches() -> list[dict[str, list[str | None]]]:
    every = list((cases(POSTGRES) | cases(OURS)).items())
    return [dict(every[at : at + BATCH]) for at in range(0, len(every), BATCH)]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> SparkSession:
    """The session, with ROWS as the view `t`."""
    spark.conf.set("spark.sql.ansi.enabled", "true")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    selects: list[str] = []
    for number, line in enumerate(ROWS.strip().split("\n")):
        literals = ", ".join(
            f"{spark_literal(literal(text, column.type))} AS {column.name}"
            for text, column in zip(cells(line), COLUMNS, strict=True)
        )
        selects.append(f"SELECT {number} AS k, {literals}")
    # Checkpointed, so that Spark computes over rows instead of folding constants.
    spark.sql(" UNION ALL ".join(selects)).coalesce(1).localCheckpoint().createOrReplaceTempView(
        "t"
    )
    return spark


def literal(text: str | None, type_: SqlType) -> Lit:
    return Lit(None, type_) if text is None else typed(text, type_)


def planned(sql: str) -> Expr:
    plan = plan_query(parse_query(f"SELECT {sql} FROM t"), Catalog())
    assert isinstance(plan, Project)
    return plan.outputs[0]


def run(session: SparkSession, exprs: list[Expr]) -> list[Row]:
    outputs: list[str] = []
    for at, expr in enumerate(exprs):
        message = error(expr, name_of)
        outputs.append(f"{value(expr, name_of)} AS raw{at}")
        outputs.append(f"CAST({value(expr, name_of)} AS STRING) AS value{at}")
        outputs.append(f"{message or 'CAST(NULL AS STRING)'} AS error{at}")
    frame = session.sql(f"SELECT k, {', '.join(outputs)} FROM t ORDER BY k")
    types = dict(frame.dtypes)
    for at, expr in enumerate(exprs):
        wanted = expr.type.spark.lower().replace("_ltz", "")
        assert types[f"raw{at}"] == wanted, (expr, types[f"raw{at}"])
    raws = [f"raw{at}" for at in range(len(exprs))]
    return frame.drop(*raws).collect()


def name_of(index: int) -> str:
    return COLUMNS[index].name


def same(got: str | None, wanted: str | None, type_: SqlType) -> bool:
    if got == wanted or got is None or wanted is None or "!" in (got[0:1], wanted[0:1]):
        return got == wanted
    if type_.name == "double precision":
        return float(got) == float(wanted) or got == wanted == "NaN"
    if type_.name == "numeric":
        # A bare numeric keeps 16 decimals of what PostgreSQL computed with more.
        return abs(Decimal(got) - Decimal(wanted)) <= (
            Decimal("0.5e-16") if type_ == NUMERIC else 0
        )
    if type_.name == "timestamp with time zone":
        return f"{got}+00" == wanted
    return False


@pytest.mark.parametrize("batch", batches(), ids=lambda batch: next(iter(batch)))
def test_values_and_errors(rows: SparkSession, batch: dict[str, list[str | None]]) -> None:
    exprs = [planned(sql) for sql in batch]
    found = run(rows, exprs)
    wrong: list[str] = []
    for at, (sql, expected) in enumerate(batch.items()):
        for row, wanted in zip(found, expected, strict=True):
            message = row[f"error{at}"]
            got = f"!{message}" if message is not None else row[f"value{at}"]
            if not same(got, wanted, exprs[at].type):
                wrong.append(f"{sql}, row {row['k']}: {got!r}, expected {wanted!r}")
    assert not wrong, "\n".join(wrong)


NASTY = [
    "",
    "'",
    "\\",
    "\\'",
    "\\\\'",
    "it's",
    '"quoted"',
    "`ticks`",
    "\n\t\r",
    "\\n",
    "${spark.app.name}",
    "${env:HOME}",
    "$1",
    "\\u0041",
    "\\%_",
    "-- comment",
    "/* comment */",
    "'; DROP TABLE t; --",
    "{0} {v} {T}",
    "%s :name ?",
    "日本語 🎉",
]


def test_a_sum_of_many_is_no_more_work_than_it_says(rows: SparkSession) -> None:
    """Spark's parser ran out of memory over the errors of a few dozen sums within sums."""
    many = planned(" + ".join(["i"] * 100 + ["s", "j / nullif(c, 0)::int"]))
    for sum_ in (many, *(planned(" + ".join([each] * 100)) for each in ("n", "m", "d", "b + i"))):
        text = error(sum_, name_of)
        assert text is not None
        assert len(text) < 30_000
    half = planned("(i + j) - (i + j) * (i - i)")  # The middle overflows in row 1 only.
    over = "integer out of range"
    found = [each.error0 for each in run(rows, [half])]
    assert found == [None, over, None, None, None, None, None, None]
    doubles = planned("d + d + e + e + d + d + d + d + d + d")
    found = [each.error0 for each in run(rows, [doubles])]
    assert found == [None, None, "value out of range: overflow", None, None, None, None, None]
    numerics = planned("n * n * n - o + n")
    found = [each.error0 for each in run(rows, [numerics])]
    assert found == [None, None, "numeric field overflow", None, None, None, None, None]
    found = [each.error0 for each in run(rows, [many])]
    assert found[1] == over
    assert found[5] is None


def test_text_literals_stay_what_they_are(spark: SparkSession) -> None:
    listed = ", ".join(spark_literal(Lit(text, TEXT)) for text in NASTY)
    assert list(spark.sql(f"SELECT {listed}").collect()[0]) == NASTY


def test_nasty_text_goes_through_functions_and_messages(spark: SparkSession) -> None:
    joined, number = planned("t || 'x'"), planned("t::integer")
    (at,) = columns_of(joined)
    for text in NASTY:
        literals = {at: spark_literal(Lit(text, TEXT))}
        found = spark.sql(
            f"SELECT {value(joined, literals.__getitem__)}, {error(number, literals.__getitem__)}"
        ).collect()[0]
        assert list(found) == [f"{text}x", f'invalid input syntax for type integer: "{text}"']


@pytest.mark.parametrize(
    ("sql", "text", "expected"),
    [
        ("decode(t, 'hex')", "0abc", b"\x0a\xbc"),
        ("decode(t, 'hex')", "abc", "invalid data to decode"),
        ("decode(t, 'base64')", "YQ==", b"a"),
        ("decode(t, 'base64')", "Y Q\n= =\t", b"a"),
        ("decode(t, 'base64')", "YQ", "invalid data to decode"),
        ("t::bytea", "\\xabcd", b"\xab\xcd"),
        ("t::bytea", "\\xabc", 'invalid input syntax for type bytea: "\\xabc"'),
    ],
)
def test_bytes_that_are_cut_off_are_an_error_not_filled_up(
    spark: SparkSession, sql: str, text: str, expected: bytes | str
) -> None:
    expr = planned(sql)
    literals = dict.fromkeys(columns_of(expr), spark_literal(Lit(text, TEXT)))
    outputs = value(expr, literals.__getitem__), error(expr, literals.__getitem__)
    found = spark.sql(f"SELECT {', '.join(map(str, outputs))}").collect()[0]
    assert found[isinstance(expected, str)] == expected
