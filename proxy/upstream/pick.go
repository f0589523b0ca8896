package upstream

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/cespare/xxhash/v2"
)

// A Balance is how a pool spreads requests over its targets.
type Balance uint8

// The balances. All of them honour weights.
const (
	RoundRobin  Balance = iota // targets take turns
	LeastLoaded                // the target with the fewest requests in progress
	HashBy                     // requests with one Request.HashBy go to one target; others take turns
)

// A backend is a target in one pool. The group's mutex guards what changes.
type backend struct {
	endpoint
	*targetHealth
	number        int // in its pool
	weight        float64
	nameHash      uint64  // its name as a number
	currentWeight float64 // what it has gained and not spent by taking turns
}

// A selection is one request that wants a target.
type selection struct {
	hash  string     // "" for none
	tried []*backend // those that have failed it
}

// pick picks the member to ask: nil and errNoTarget when none is fit, nil and
// no error when all that are fit are full. Those that have not failed this
// request come before others, and those that are not ejected before those that
// are. It costs a look at each member.
func (p *Pool) pick(now time.Time, a selection) (*backend, error) {
	candidates := p.scratch[:0]
	best, fit := 0, false
	for _, m := range p.backends {
		if p.health.Path != "" && m.unhealthy {
			continue
		}
		fit = true
		if p.maxConnections > 0 && m.inFlight >= p.maxConnections {
			continue
		}
		rank := 1
		if m.ejected(now, p.health) {
			rank++
		}
		if a.hasTried(m) {
			rank += 2
		}
		switch {
		case best == 0 || rank < best:
			best, candidates = rank, append(candidates[:0], m)
		case rank == best:
			candidates = append(candidates, m)
		}
		p.scratch = candidates
	}
	switch {
	case !fit:
		return nil, errNoTarget
	case len(candidates) < 2:
		return firstOrNil(candidates), nil
	case p.balance == HashBy && a.hash != "":
		return rendezvous(candidates, a.hash), nil
	case p.balance == LeastLoaded:
		candidates = p.leastLoaded(now, candidates)
	}
	return p.roundRobin(now, candidates), nil
}

// hasTried reports whether m has failed this request.
func (a selection) hasTried(m *backend) bool {
	for _, t := range a.tried {
		if t == m {
			return true
		}
	}
	return false
}

func firstOrNil(candidates []*backend) *backend {
	if len(candidates) == 0 {
		return nil
	}
	return candidates[0]
}

// roundRobin lets candidates take turns, spread as evenly as their weights allow. The
// algorithm is nginx's smooth weighted round robin: each time everyone gains its
// weight, the richest is picked and pays the sum.
func (p *Pool) roundRobin(now time.Time, candidates []*backend) *backend {
	var sum float64
	best := candidates[0]
	for _, m := range candidates {
		share := m.weight * m.slowStartFactor(now, p.health)
		sum += share
		m.currentWeight += share
		if m.currentWeight > best.currentWeight {
			best = m
		}
	}
	best.currentWeight -= sum
	return best
}

// leastLoaded keeps those candidates that one more request would load the least.
func (p *Pool) leastLoaded(now time.Time, candidates []*backend) []*backend {
	least := math.Inf(1)
	kept := candidates[:0]
	for _, m := range candidates {
		load := float64(m.inFlight+1) / (m.weight * m.slowStartFactor(now, p.health))
		switch {
		case load < least:
			least, kept = load, append(kept[:0], m)
		case load == least:
			kept = append(kept, m)
		}
	}
	return kept
}

// rendezvous picks by rendezvous: each candidate and hashBy together make
// a number, and the highest wins. So when a target goes, only its own requests
// move, in shares by weight. The score is Schindelhauer and Schomaker's,
// weight/-ln(u) with u spread evenly between 0 and 1.
func rendezvous(candidates []*backend, hashBy string) *backend {
	hash := xxhash.Sum64String(hashBy)
	var best *backend
	var most float64
	for _, m := range candidates {
		var both [16]byte
		binary.BigEndian.PutUint64(both[:8], hash)
		binary.BigEndian.PutUint64(both[8:], m.nameHash)
		u := (float64(xxhash.Sum64(both[:])>>11) + 0.5) / (1 << 53)
		if score := m.weight / -math.Log(u); best == nil || score > most {
			best, most = m, score
		}
	}
	return best
}
