{{ config(indexes=[{'columns': ['region']}]) }}
select c.region, count(*) as orders, sum(o.amount) as total
from {{ ref('large_orders') }} o join {{ ref('customers') }} c on o.customer_id = c.id
group by c.region
