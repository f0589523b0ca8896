package limiter

import (
	"context"
	"time"
)

// Inspect implements AdminStore.
func (m *Memory) Inspect(_ context.Context, claims []Claim) (Inspection, error) {
	if err := CheckAll(claims); err != nil {
		return Inspection{}, err
	}
	var room [inline]cellRef
	refs := m.refs(claims, room[:0])
	m.lock(refs)
	defer m.unlock(refs)

	now := m.clock().UnixMilli()
	in := Inspection{At: time.UnixMilli(now), Standings: make([]Standing, len(claims))}
	for i, c := range claims {
		standing := &in.Standings[i]
		*standing = Standing{Rate: c.Limit.Rate, Most: c.Limit.Most(), Left: c.Limit.Most()}
		if found := m.shards[refs[i].shard].sharedLocked(refs[i].id, c.Source); found != nil {
			standing.Overflow = found.id != refs[i].id
			found.inspect(now, c.Limit, standing)
		}
	}
	return in, nil
}

// inspect writes how c stands.
func (c *cell) inspect(now int64, l *Limit, s *Standing) {
	c.advance(now, l)
	left := c.left(now, l)
	s.Left, s.Used = max(0, left), s.Most-left
	s.Banned = millis(max(0, c.banned-now))
	if l.Algorithm == Cooldown {
		s.Used, s.Next = max(0, c.taken), millis(c.pause(now, l))
		if c.taken > 0 {
			s.Full = millis(c.newest() + length(l) - now)
		}
		return
	}
	if s.Left < s.Most {
		s.Next, s.Full = millis(c.wait(now, l, s.Left+1)), millis(c.wait(now, l, s.Most))
	}
}
