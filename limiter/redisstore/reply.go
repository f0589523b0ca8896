package redisstore

import (
	"errors"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// errReply says that Redis answered something that our scripts never answer.
var errReply = errors.New("reply of an unknown shape")

// readTime takes the time off the front of a reply, which must be a list of
// whole numbers.
func readTime(reply any) (time.Time, []any, error) {
	list, ok := reply.([]any)
	if !ok || len(list) == 0 {
		return time.Time{}, nil, errReply
	}
	now, ok := list[0].(int64)
	if !ok || now <= 0 {
		return time.Time{}, nil, errReply
	}
	return time.UnixMilli(now), list[1:], nil
}

// readDecision takes one decision off the front of list into d. Every number
// must lie where a right script puts it.
func readDecision(list []any, at time.Time, claims []limiter.Claim, d *limiter.Decision) ([]any, error) {
	allowed, ok := number(list, 0)
	if !ok || allowed > 1 {
		return nil, errReply
	}
	*d = limiter.Decision{Allowed: allowed == 1, At: at, Outcomes: d.Outcomes[:0]}
	for i, c := range claims {
		left, ok1 := number(list, 1+2*i)
		wait, ok2 := number(list, 2+2*i)
		window := c.Limit.Rate.Window
		if !ok1 || !ok2 || left > c.Limit.Rate.Count || wait > window.Milliseconds() || (wait == 0) != (left >= c.Cost) {
			return nil, errReply
		}
		o := limiter.Outcome{
			Allowed:   d.Allowed || wait == 0,
			Remaining: left,
			Wait:      time.Duration(wait) * time.Millisecond,
		}
		if !o.Allowed {
			d.Wait = max(d.Wait, o.Wait)
		}
		d.Outcomes = append(d.Outcomes, o)
	}
	if !d.Allowed && d.Wait == 0 {
		return nil, errReply // a refusal without a reason
	}
	return list[1+2*len(claims):], nil
}

// number is the whole number at i, not negative.
func number(list []any, i int) (int64, bool) {
	if i >= len(list) {
		return 0, false
	}
	n, ok := list[i].(int64)
	return n, ok && n >= 0
}
