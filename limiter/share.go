package limiter

// Share is the part of l that each of n processes may grant by itself while they
// cannot count together: the n-th part of its permits, but at least 1. A limit
// that each counts by itself anyway stays whole.
func (l *Limit) Share(n int) Limit {
	part, of := *l, l.processes(n)
	part.Rate.Count = max(l.Rate.Count/of, 1)
	if l.Burst > 0 {
		part.Burst = max(l.Burst/of, 1)
	}
	return part
}

func (l *Limit) processes(n int) int64 {
	if l.Scope == PerClient {
		return 1
	}
	return int64(max(n, 1))
}
