package proxy

// mergePrevious merges the outcomes under the previous secret into those under the current one. A
// limit is reached if it is reached under either.
func (q *admission) mergePrevious() {
	for i, o := range q.decision.Outcomes {
		own := q.claims.currentIndex(i)
		if own == i {
			continue
		}
		both := &q.decision.Outcomes[own]
		both.Allowed = both.Allowed && o.Allowed
		both.Banned = both.Banned || o.Banned
		both.Remaining, both.Wait = min(both.Remaining, o.Remaining), max(both.Wait, o.Wait)
		both.Unknown = both.Unknown && o.Unknown
	}
}
