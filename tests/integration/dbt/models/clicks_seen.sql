select count(*) as clicks from {{ ref('clicks') }}
