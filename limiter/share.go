package limiter

// Share returns the limit that each of n processes may apply on its own while they cannot
// count together: an n-th of the permits, but at least 1. A limit with scope PerClient is
// returned unchanged.
func (l *Limit) Share(n int) Limit {
	part, of := *l, l.parts(n)
	part.Rate.Count = max(l.Rate.Count/of, 1)
	if l.Burst > 0 {
		part.Burst = max(l.Burst/of, 1)
	}
	return part
}

func (l *Limit) parts(n int) int64 {
	if l.Scope == PerClient {
		return 1
	}
	return int64(max(n, 1))
}
