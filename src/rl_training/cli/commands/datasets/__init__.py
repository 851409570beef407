"""Commands about datasets: record, describe, check, convert and join them."""
