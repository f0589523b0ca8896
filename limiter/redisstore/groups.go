package redisstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// A group is a group of claims that is decided beside group 0.
type group struct {
	claims           []limiter.Claim
	limiter.Decision // its Outcomes are nil until it is decided
}

// takeGroups takes own, the claims of group 0, and others. It takes one round trip and is atomic in Redis,
// unless the claims lie on several masters of a cluster or in limiters shared with Redisson: then the others are
// taken after own, all of them at the same time. All have one permit ID: their windows differ.
func (s *Store) takeGroups(ctx context.Context, own, others []limiter.Claim, id [16]byte, d *limiter.Decision) error {
	groups, open := s.groups(len(own), others)
	isOneCall := s.isOneCall(own, open)
	*d = limiter.Decision{Allowed: true, At: time.Now(), Outcomes: d.Outcomes[:0]}
	if isOneCall {
		err := s.takeAfterReports(ctx, slices.Concat(own, open), id, d)
		if isOneCall = !errors.Is(err, errSeveralCalls); isOneCall && (err != nil || !d.Allowed) {
			return err
		}
	}
	if !isOneCall && len(own) > 0 {
		if err := s.takeAfterReports(ctx, own, id, d); err != nil || !d.Allowed {
			return err
		}
	}
	said := slices.Clone(d.Outcomes[len(own):])
	d.Outcomes = d.Outcomes[:len(own)]
	var all sync.WaitGroup
	for i := range groups {
		switch g := &groups[i]; {
		case g.Outcomes != nil:
		case isOneCall:
			g.Outcomes, said = said[:len(g.claims)], said[len(g.claims):]
		default:
			all.Go(func() {
				if s.orRepeat(s.takeAfterReports(ctx, g.claims, id, &g.Decision), g.claims, &g.Decision) != nil {
					g.Decision = limiter.Decision{}
					g.AddFailed(len(g.claims))
				}
			})
		}
	}
	all.Wait()
	for i := range groups {
		d.Outcomes = append(d.Outcomes, groups[i].Outcomes...)
		if d.Permit.IsZero() {
			d.Permit = groups[i].Permit
		}
	}
	return nil
}

// groups returns the groups of others. Those that are not valid, or known to be refused, are decided; open are the claims
// of those that are not.
func (s *Store) groups(asked int, others []limiter.Claim) (groups []group, open []limiter.Claim) {
	for len(others) > 0 {
		var g group
		g.claims, others = limiter.CutGroup(others)
		if limiter.CheckGroup(g.claims, asked) != nil {
			g.AddFailed(len(g.claims))
		} else if asked += len(g.claims); !s.refusals.decide(refusalTTL, g.claims, &g.Decision) {
			g.Outcomes, open = nil, append(open, g.claims...)
		}
		groups = append(groups, g)
	}
	return groups, open
}

// isOneCall reports whether one script call can decide own and the claims of other groups.
func (s *Store) isOneCall(own, others []limiter.Claim) bool {
	if len(own) == 0 || len(others) == 0 || s.reports.windows.Load() > 0 && s.reports.hasAny(own) {
		return false
	}
	isOther := func(c limiter.Claim) bool {
		return c.RedissonName != "" || s.isCluster && isNoted(&c) || !s.isCluster && s.partSlot(&c) != s.partSlot(&own[0])
	}
	return !slices.ContainsFunc(own, isOther) && !slices.ContainsFunc(others, isOther)
}

// addRequests adds a request for each group of c. Redis decides those behind the first one if that was granted.
func (b *batch) addRequests(g *slotBatch, c *call) {
	group, others := limiter.CutGroup(c.claims)
	b.addRequest(g, c, group)
	for p := &g.payload; len(others) > 0; {
		group, others = limiter.CutGroup(others)
		p.follows = append(append(p.follows, make([]byte, p.requestCount-len(p.follows))...), 1)
		b.addRequest(g, c, group)
	}
}

// groups returns the number of groups of the claims of c.
func (c *call) groups() (n int) {
	for rest := c.claims; len(rest) > 0; n++ {
		_, rest = limiter.CutGroup(rest)
	}
	return n
}

// readCall reads the decisions about the groups of c at the start of list into d. Those behind the first one mean nothing
// if it was refused. It returns the rest of list.
func (b *batch) readCall(list []int64, at time.Time, c *call, d *limiter.Decision) ([]int64, error) {
	own, others := limiter.CutGroup(c.claims)
	rest, err := b.readDecision(list, at, own, d)
	if err == nil && d.Allowed {
		b.addLate(c, own, at)
	}
	for len(others) > 0 {
		var group []limiter.Claim
		if group, others = limiter.CutGroup(others); err != nil || !d.Allowed {
			rest = rest[1+2*len(group):]
			continue
		}
		var bad error
		beside := limiter.Decision{Outcomes: d.Outcomes[len(d.Outcomes):]}
		if rest, bad = b.readDecision(rest, at, group, &beside); bad != nil {
			d.AddFailed(len(group))
			continue
		}
		d.Outcomes = append(d.Outcomes, beside.Outcomes...)
		if beside.Allowed {
			b.addLate(c, group, at)
		}
	}
	return rest, err
}
