{{ config(materialized='source') }}
from load generator counter (tick interval '1s')
