//! Workloads, datasets, limits and the benchmark driver.
