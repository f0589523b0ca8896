package redisstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
)

// errSeveralCalls reports that one script call cannot decide all claims: they are on several masters of a cluster, or
// keys have moved. Nothing was taken.
var errSeveralCalls = errors.New("keys are on several nodes of redis")

// place returns what the part of c that one script call takes has in common.
func (s *Store) place(ctx context.Context, c *limiter.Claim) (partID, error) {
	p, err := s.pipelines.forClaim(ctx, c)
	if err != nil || p.crossSlot.Load() {
		return partID{pipeline: p}, err
	}
	return partID{s.partSlot(c), p}, nil
}

// pipelineFor returns the pipeline to the master whose script call decides claims, or errSeveralCalls.
func (s *Store) pipelineFor(ctx context.Context, claims []limiter.Claim) (*pipeline, error) {
	first, err := s.place(ctx, &claims[0])
	for i := 1; i < len(claims) && err == nil; i++ {
		var other partID
		if other, err = s.place(ctx, &claims[i]); err == nil && other != first {
			err = errSeveralCalls
		}
	}
	return first.pipeline, err
}

// crossSlotError returns what err means, which is of a call with keys of several slots. A Redis before version 7 knows
// no such scripts.
func (p *pipeline) crossSlotError(err error) error {
	var reply redis.Error
	switch {
	case hasCode(err, "READONLY", "Script attempted to ", "Attempted to "): // not its master, or not of all: Redis, Valkey 9
	case errors.As(err, &reply) && strings.HasPrefix(reply.Error(), "ERR "):
		p.crossSlot.Store(false)
	default:
		return err
	}
	return errSeveralCalls
}

// reserve decides a request that several script calls decide. All are made at the same time, and if one refuses, what
// the others have granted is refunded, without waiting for that. In between,
// other requests may be refused permits that become available a moment later, but no
// limit is exceeded. If this process dies in between, the permits expire.
func (s *Store) reserve(ctx context.Context, claims []limiter.Claim, id [16]byte, d *limiter.Decision) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	parts, err := s.partsToTake(ctx, claims)
	if err != nil {
		return err
	}
	s.takeAll(ctx, parts, id)
	granted, failed := true, error(nil)
	for _, p := range parts {
		granted, failed = granted && p.Allowed, cmp.Or(failed, p.err)
	}
	if !granted {
		s.refundParts(id, parts)
	}
	mergeParts(claims, parts, d)
	if !d.Allowed {
		return nil
	}
	d.Permit = permitOf(id, d.At, parts)
	return failed
}

// A permit has one time, the earliest of its parts. Which are later, and by how many ms, is in the half of its ID that is
// not written to Redis: behind lateMark the first byte of a key and the ms, for up to three keys. Without that a window that
// such a part began would not know the permit.
const lateMark = "\xf0\x9f"

// permitOf returns the permit of what parts took.
func permitOf(id [16]byte, at time.Time, parts []*part) limiter.Permit {
	late := []byte(lateMark)
	for _, p := range parts {
		for i := range p.claims {
			ms := takenAt(p.Permit, &p.claims[i]).Sub(at).Milliseconds()
			isKnown := i > 0 && p.claims[i].Key == p.claims[i-1].Key
			if ms > 0 && ms < 256 && !isKnown {
				late = append(late, p.claims[i].Key[0], byte(ms))
			}
		}
	}
	if len(late) > len(lateMark) {
		clear(id[idBytes:])
		copy(id[idBytes:], late)
	}
	return limiter.Permit{ID: id, At: at}
}

// takenAt returns when p was taken for c.
func takenAt(p limiter.Permit, c *limiter.Claim) time.Time {
	late, isLate := bytes.CutPrefix(p.ID[idBytes:], []byte(lateMark))
	for ; isLate && len(late) > 0; late = late[2:] {
		if late[0] == c.Key[0] {
			return p.At.Add(time.Duration(late[1]) * time.Millisecond)
		}
	}
	return p.At
}

// partsToTake splits claims by the masters that decide them or, if that is one, which could not, by their slots.
func (s *Store) partsToTake(ctx context.Context, claims []limiter.Claim) (parts []*part, err error) {
	place := func(c *limiter.Claim) partID {
		id, failed := s.place(ctx, c)
		err = cmp.Or(err, failed)
		return id
	}
	if parts = splitClaims(claims, place); len(parts) == 1 {
		parts = splitClaims(claims, func(c *limiter.Claim) partID { return partID{s.partSlot(c), parts[0].pipeline} })
	}
	return parts, err
}

// takeAll takes parts, all of them at the same time.
func (s *Store) takeAll(ctx context.Context, parts []*part, id [16]byte) {
	calls := make([]*call, len(parts))
	for i, p := range parts {
		calls[i] = s.newCall(p.claims, id)
		calls[i].crossSlot = s.isCluster && p.slot == slot{}
		p.err = p.pipeline.start(ctx, calls[i])
	}
	for i, p := range parts {
		if p.err == nil {
			p.err = p.pipeline.wait(ctx, calls[i])
		}
		switch {
		case p.err == nil:
			calls[i].readInto(&p.Decision)
			s.reuseCall(calls[i])
		case errors.Is(p.err, errSeveralCalls):
			p.err = s.reserve(ctx, p.claims, id, &p.Decision)
		}
	}
}

// refundParts refunds what parts have granted, and what they may have granted, of which the outcome is unknown. If that
// fails, the permits expire.
func (s *Store) refundParts(id [16]byte, parts []*part) {
	var waits []func() (int64, error)
	for _, p := range parts {
		permit := p.Permit
		switch {
		case p.err != nil:
			p.Decision = unknownDecision(p.claims)
			permit = limiter.Permit{ID: id, At: time.UnixMilli(1)} // only what is found by its ID is refunded
		case !p.Allowed:
			continue
		}
		for i := range p.Outcomes {
			o := &p.Outcomes[i]
			o.Remaining = min(o.Remaining+p.claims[i].Cost, p.claims[i].Limit.Capacity())
			o.Wait = 0
		}
		waits = append(waits, s.startRefund(p.claims, permit)) // not by a note, which is not written yet
	}
	s.background.Go(func() {
		for _, wait := range waits {
			_, _ = wait()
		}
	})
}

// unknownDecision returns a decision with unknown outcomes for limits that could not be
// evaluated.
func unknownDecision(claims []limiter.Claim) limiter.Decision {
	d := limiter.Decision{Allowed: true}
	for _, c := range claims {
		d.Outcomes = append(d.Outcomes, limiter.Outcome{Allowed: true, Remaining: c.Limit.Capacity(), Unknown: true})
	}
	return d
}

// mergeParts merges the decisions of parts. Nodes have different clocks, so its time is
// the earliest of theirs.
func mergeParts(claims []limiter.Claim, parts []*part, d *limiter.Decision) {
	*d = limiter.Decision{Allowed: true, Outcomes: append(d.Outcomes[:0], make([]limiter.Outcome, len(claims))...)}
	for _, p := range parts {
		if !p.At.IsZero() && (d.At.IsZero() || p.At.Before(d.At)) {
			d.At = p.At
		}
		d.Allowed = d.Allowed && p.Allowed
		d.Wait = max(d.Wait, p.Wait)
		for i, place := range p.indices {
			d.Outcomes[place] = p.Outcomes[i]
		}
	}
}

// eachPart calls do for all parts concurrently and joins the errors.
func eachPart(parts []*part, do func(p *part) error) error {
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, p := range parts {
		wg.Go(func() { errs[i] = do(p) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

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
			d.Permit, d.At = groups[i].Permit, cmp.Or(groups[i].At, d.At)
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
