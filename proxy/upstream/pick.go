package upstream

import "sync/atomic"

// A rotation is the order in which targets take turns. It is worked out once,
// so that taking a turn is one atomic addition.
type rotation struct {
	order []uint16 // indexes of targets
	turn  atomic.Uint64
}

// newRotation spreads turns by weight, each 1 or more: of every sum of weights
// (their common divisor taken out) target i gets weights[i], spread as evenly
// as can be. The algorithm is nginx's smooth weighted round robin: each turn
// everyone gains its weight, the richest is picked and pays the sum.
func newRotation(weights []int) *rotation {
	divisor, sum := 0, 0
	for _, w := range weights {
		divisor = gcd(divisor, w)
	}
	for _, w := range weights {
		sum += w / divisor
	}
	r := &rotation{order: make([]uint16, 0, sum)}
	credit := make([]int, len(weights))
	for range sum {
		best := 0
		for i, w := range weights {
			credit[i] += w / divisor
			if credit[i] > credit[best] {
				best = i
			}
		}
		credit[best] -= sum
		r.order = append(r.order, uint16(best))
	}
	return r
}

// next is the index of the target whose turn it is.
func (r *rotation) next() int {
	if len(r.order) == 1 {
		return int(r.order[0])
	}
	return int(r.order[(r.turn.Add(1)-1)%uint64(len(r.order))])
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
