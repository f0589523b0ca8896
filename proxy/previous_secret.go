package proxy

import "slices"

// currentClaim is the claim under the key in use that claims[i] repeats under the key of
// the secret which that one replaces; i if it repeats none.
func (x *exchange) currentClaim(i int) int { return slices.Index(x.windows, x.windows[i]) }

// mergePrevious lets the outcome under the key in use say what both keys say: a limit is
// reached when it is under either.
func (x *exchange) mergePrevious() {
	for i, o := range x.decision.Outcomes {
		own := x.currentClaim(i)
		if own == i {
			continue
		}
		both := &x.decision.Outcomes[own]
		both.Allowed = both.Allowed && o.Allowed
		both.Banned = both.Banned || o.Banned
		both.Remaining, both.Wait = min(both.Remaining, o.Remaining), max(both.Wait, o.Wait)
		both.Unknown = both.Unknown && o.Unknown
	}
}
