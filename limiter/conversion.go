package limiter

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// A Conversion limit counts requests until they are confirmed (see Limit.Noted), and grants more to a
// key whose requests are confirmed: Rate.Count + V x (100-p)/p of them may be open in any window, where p is
// Limit.Conversion and V the number of subjects that were confirmed in it. So the conversion of what is
// granted beyond Rate.Count is at least p percent.
//
// Its state is a log of buckets, each 1/conversionBuckets of a window: of kind merged what was taken, of
// kind confirmed the subjects. What was taken counts until the whole of its bucket has left the window,
// and a confirmation until its bucket begins to leave. So never more is granted than with exact times, and
// a request may be refused longer by the length of a bucket.

const (
	conversionBuckets = 60
	// maxConversionLog is the largest number of entries: buckets of both kinds.
	maxConversionLog = 2 * (conversionBuckets + 2)
)

// bucketMillis returns the length of a bucket of l.
func bucketMillis(l *Limit) int64 {
	return (windowMillis(l) + conversionBuckets - 1) / conversionBuckets
}

// checkConversion checks the fields of a Conversion limit.
func (l *Limit) checkConversion() error {
	switch {
	case l.Conversion < 1 || l.Conversion > 100:
		return fmt.Errorf("%w: %s has a conversion of %d %%; it is 1 to 100", ErrInvalidLimit, l.Name, l.Conversion)
	case !l.Noted:
		return fmt.Errorf("%w: %s has a conversion, so its permits must be noted", ErrInvalidLimit, l.Name)
	}
	return nil
}

// allowance returns the number of permits that may be taken if v subjects were confirmed.
func (l *Limit) allowance(v int64) int64 {
	p := int64(l.Conversion)
	return l.Rate.Count + v*(100-p)/p
}

// leavesAt returns the time from which e, a bucket, no longer counts in the window.
func (e *entry) leavesAt(length, width int64) int64 {
	if e.kind == confirmed {
		return e.at + length
	}
	return e.at + width - 1 + length
}

// advanceConversion removes what no longer counts at now.
func (s *keyState) advanceConversion(now int64, l *Limit) {
	length, width := windowMillis(l), bucketMillis(l)
	s.settleConversion(now, l)
	kept := s.entries[:0]
	for _, e := range s.entries {
		if e.leavesAt(length, width) > now {
			kept = append(kept, e)
		} else if e.kind == merged { // what has left is not returned from a bucket of the same time after the clock was set back
			s.taken, s.floor = s.taken-int64(e.n), max(s.floor, e.at+width-1)
		}
	}
	s.entries = kept
}

// settleConversion moves buckets after the clock was set back: permits of buckets that begin later than now
// were taken in that of now, and can no longer be returned, for their times are those of other permits from then
// on. Later confirmations do not count: they may be older than a window.
func (s *keyState) settleConversion(now int64, l *Limit) {
	width, moved := bucketMillis(l), int64(0)
	for n := len(s.entries); n > 0 && s.entries[n-1].at > now; n = len(s.entries) {
		e := s.entries[n-1]
		if s.entries = s.entries[:n-1]; e.kind == merged {
			s.floor = max(s.floor, e.at+width-1)
			moved += int64(e.n)
		}
	}
	if moved > 0 {
		s.addToBucket(now-now%width, merged, moved)
	}
}

// confirmedSubjects returns the number of subjects that were confirmed in the window.
func (s *keyState) confirmedSubjects() (v int64) {
	for i := range s.entries {
		if s.entries[i].kind == confirmed {
			v += int64(s.entries[i].n)
		}
	}
	return v
}

// waitConversion returns the time until cost permits are left. Both what was taken and what was
// confirmed leaves the window, so fewer may be left later.
func (s *keyState) waitConversion(now int64, l *Limit, cost int64) int64 {
	length, width := windowMillis(l), bucketMillis(l)
	leaving := slices.Clone(s.entries)
	slices.SortFunc(leaving, func(a, b entry) int { return cmp.Compare(a.leavesAt(length, width), b.leavesAt(length, width)) })
	open, v := s.taken, s.confirmedSubjects()
	for i := range leaving {
		e := &leaving[i]
		switch e.kind {
		case merged:
			open -= int64(e.n)
		case confirmed:
			v -= int64(e.n)
		}
		at := e.leavesAt(length, width)
		isLast := i == len(leaving)-1 || leaving[i+1].leavesAt(length, width) > at
		if isLast && open+cost <= l.allowance(v) {
			return at - now
		}
	}
	return l.Horizon().Milliseconds() // only if taken is more than all entries
}

// takeConversion adds cost permits to the bucket of now.
func (s *keyState) takeConversion(now int64, l *Limit, cost int64) {
	s.addToBucket(now-now%bucketMillis(l), merged, cost)
	s.taken += cost
}

// takeIntoNewestBucket is takeConversion without a new entry: the newest bucket of permits becomes that of now, so
// that some count longer. There is a new one only if there is none.
func (s *keyState) takeIntoNewestBucket(now int64, l *Limit, cost int64) {
	for i := len(s.entries) - 1; i >= 0; i-- {
		if e := s.entries[i]; e.kind == merged {
			s.entries = slices.Delete(s.entries, i, i+1)
			s.taken -= int64(e.n)
			cost += int64(e.n)
			break
		}
	}
	s.takeConversion(now, l, cost)
}

// confirm counts a subject that was confirmed at now, and before, if that is not 0, less than a window ago: it counts from
// now on, and once.
func (s *keyState) confirm(now int64, l *Limit, before int64) {
	width := bucketMillis(l)
	if e := s.bucket(before-before%width, confirmed); before > 0 && e != nil && e.n > 0 {
		e.n--
	}
	s.addToBucket(now-now%width, confirmed, 1)
}

// addToBucket adds n to the bucket of a kind that begins at start.
func (s *keyState) addToBucket(start int64, kind entryKind, n int64) {
	if e := s.bucket(start, kind); e != nil {
		e.n += uint32(n)
		return
	}
	s.insert(entry{at: start, kind: kind, n: uint32(n)})
}

// bucket returns the bucket of a kind that begins at start, or nil.
func (s *keyState) bucket(start int64, kind entryKind) *entry {
	for i := len(s.entries) - 1; i >= 0 && s.entries[i].at >= start; i-- {
		if e := &s.entries[i]; e.at == start && e.kind == kind {
			return e
		}
	}
	return nil
}

// refundConversion takes the permits of a claim out of the bucket in which p took them, and returns their
// number. A bucket does not know of which decisions its permits are: the caller knows by their note that they
// have not been returned.
func (s *keyState) refundConversion(p Permit, c *Claim) int64 {
	at := p.At.UnixMilli()
	e := s.bucket(at-at%bucketMillis(c.Limit), merged)
	if at <= s.floor || e == nil {
		return 0
	}
	n := min(c.Cost, int64(e.n))
	e.n -= uint32(n)
	s.taken -= n
	return n
}

// grantConversion removes n permits from the latest buckets. Nothing that was taken before is returned any more.
func (s *keyState) grantConversion(now, n int64) {
	for i := len(s.entries) - 1; i >= 0 && n > 0; i-- {
		if e := &s.entries[i]; e.kind == merged {
			part := min(n, int64(e.n))
			e.n, n, s.taken = e.n-uint32(part), n-part, s.taken-part
		}
	}
	s.floor = max(s.floor, now)
}

// An Action is an operation of an operator on a key.
type Action string

// The actions. A ban with a duration of 0 ends a ban.
const (
	ActionReset Action = "reset" // AdminStore.Reset
	ActionGrant Action = "grant" // AdminStore.Grant
	ActionBan   Action = "ban"   // AdminStore.Ban
)

// A Change describes an action of an operator on one key under some limits. Processes
// that share a store send it to each other, because each has local state of the key that
// the action must change too: the counts it decides by while the store is unreachable,
// and those that are not shared.
type Change struct {
	Action Action        `json:"verb"`
	Key    Key           `json:"-"`
	Limits []string      `json:"limits"`           // names of limits
	Grant  int64         `json:"grant,omitempty"`  // for ActionGrant: permits, 1 or more
	Ban    time.Duration `json:"ban_ns,omitempty"` // for ActionBan: duration from now; 0 ends a ban
	// Automatic reports that refusals led to the ban, not an operator. There may be very
	// many such bans, so they are kept in bounded memory.
	Automatic bool `json:"automatic,omitempty"`
}

// Apply applies the change to the keys of claims in s. ActionGrant grants at most what
// is used of each limit.
func (c Change) Apply(ctx context.Context, s AdminStore, claims []Claim) error {
	switch c.Action {
	case ActionReset:
		return s.Reset(ctx, claims)
	case ActionBan:
		return s.Ban(ctx, claims, c.Ban)
	case ActionGrant:
		return c.grant(ctx, s, claims)
	}
	return fmt.Errorf("%w: the unknown action %q", ErrInvalidLimit, c.Action)
}

// grant grants up to c.Grant permits, and no more than are used. A call of s grants at most the capacity, of a Distinct
// limit one value, so it is repeated, up to MaxDistinct times.
func (c Change) grant(ctx context.Context, s AdminStore, claims []Claim) error {
	in, err := s.Inspect(ctx, claims)
	for round := int64(0); err == nil && round < MaxDistinct; round++ {
		var pending []Claim
		for i, claim := range claims {
			step := claim.Limit.Capacity()
			if claim.Limit.Algorithm.HasValues() {
				step = 1
			}
			most := min(c.Grant, max(in.Statuses[i].Used, step))
			if claim.Cost = min(most-round*step, step); claim.Cost > 0 {
				pending = append(pending, claim)
			}
		}
		if len(pending) == 0 {
			break
		}
		err = s.Grant(ctx, pending)
	}
	return err
}
