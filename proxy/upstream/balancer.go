package upstream

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/weir-proxy/weir/proxy/config"
)

// A backend is a target in one pool. The group's mutex guards its mutable fields.
type backend struct {
	endpoint
	*targetHealth
	number        int // index in its pool
	weight        float64
	nameHash      uint64  // hash of its name, for rendezvous hashing
	currentWeight float64 // for smooth weighted round robin
}

// A selection contains what selects a backend for one request.
type selection struct {
	hash   string     // for HashBy; "" for none
	tried  []*backend // backends that have failed this request
	stripe int        // in which the request is counted as in flight
}

// pick selects a backend. It returns errNoTarget if none is healthy, and neither a
// backend nor an error if all healthy ones are at MaxConnections. It prefers backends
// that have not failed this request, and then those that are not ejected. Its cost is
// linear in the number of backends.
func (p *Pool) pick(now time.Time, a selection) (*backend, error) {
	candidates := p.scratch[:0]
	best, fit := 0, false
	for _, m := range p.backends {
		if p.unhealthy(m) {
			continue
		}
		fit = true
		if p.isFull(m) {
			continue
		}
		rank := 1
		if m.ejected(now, &p.config.Health) {
			rank++
		}
		if slices.Contains(a.tried, m) {
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
	case len(candidates) == 0:
		return nil, nil
	case len(candidates) == 1:
		return candidates[0], nil
	case p.config.Balance == config.BalanceHash && a.hash != "":
		return rendezvous(candidates, a.hash), nil
	case p.config.Balance == config.BalanceLeastLoaded:
		candidates = p.leastLoaded(now, candidates)
	}
	return p.roundRobin(now, candidates), nil
}

// hasNoChoice reports whether pick always selects the only backend.
func (p *Pool) hasNoChoice() bool {
	return len(p.backends) == 1 && p.config.MaxConnections == 0 && p.config.Health.Path == ""
}

// unhealthy reports whether active checks have found m to be unhealthy.
func (p *Pool) unhealthy(m *backend) bool { return p.config.Health.Path != "" && m.unhealthy }

// isFull reports whether m is at MaxConnections.
func (p *Pool) isFull(m *backend) bool {
	return p.config.MaxConnections > 0 && m.inFlight.Sum() >= int64(p.config.MaxConnections)
}

// roundRobin selects by smooth weighted round robin, the algorithm of nginx: each
// candidate gains its weight, the one with the highest current weight is selected, and
// the sum of the weights is subtracted from it.
func (p *Pool) roundRobin(now time.Time, candidates []*backend) *backend {
	var sum float64
	best := candidates[0]
	for _, m := range candidates {
		share := m.weight * m.slowStartFactor(now, &p.config.Health)
		sum += share
		m.currentWeight += share
		if m.currentWeight > best.currentWeight {
			best = m
		}
	}
	best.currentWeight -= sum
	return best
}

// leastLoaded returns the candidates with the least load after one more request (least
// connections).
func (p *Pool) leastLoaded(now time.Time, candidates []*backend) []*backend {
	least := math.Inf(1)
	kept := candidates[:0]
	for _, m := range candidates {
		load := float64(m.inFlight.Sum()+1) / (m.weight * m.slowStartFactor(now, &p.config.Health))
		switch {
		case load < least:
			least, kept = load, append(kept[:0], m)
		case load == least:
			kept = append(kept, m)
		}
	}
	return kept
}

// rendezvous selects by rendezvous hashing (highest random weight), a consistent hash: each candidate gets
// a score from its name and hashBy, and the highest score wins. If a target is removed,
// only its own requests move, in proportion to the weights. The score is that of
// Schindelhauer and Schomaker, weight/-ln(u) with u uniformly distributed between 0 and
// 1.
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
