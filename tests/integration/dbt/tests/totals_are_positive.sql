select * from {{ ref('by_region') }} where total <= 0
