select kind, count(*) as events from {{ source('raw', 'events') }} group by kind
