package redisstore

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// errReply says that Redis answered something that our scripts never answer.
var errReply = errors.New("reply of an unknown shape")

// errType says that a key of a window is of another type than it should be, or holds
// what no script of ours writes; Reset heals it. Nothing was taken, and no other
// decision is touched.
var errType = errors.New("a key in Redis is of another type than its limit keeps there; reset it")

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
// must lie where a right script puts it. With errType, list goes on behind it.
func readDecision(list []any, at time.Time, claims []limiter.Claim, d *limiter.Decision) ([]any, error) {
	allowed, ok := number(list, 0)
	if ok && allowed == 2 && len(list) > 2*len(claims) {
		return list[1+2*len(claims):], badClaims(list[1:], claims)
	}
	if !ok || allowed > 1 {
		return nil, errReply
	}
	*d = limiter.Decision{Allowed: allowed == 1, At: at, Outcomes: d.Outcomes[:0]}
	for i, c := range claims {
		left, wait, ok := readClaim(list[min(len(list), 1+2*i):], c)
		if !ok || d.Allowed && left < 0 {
			return nil, errReply
		}
		o := limiter.Outcome{
			Allowed:   d.Allowed || wait == 0,
			Remaining: max(0, left),
			Wait:      time.Duration(wait) * time.Millisecond,
			Banned:    left < 0,
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

// badClaims names the limits whose windows are bad.
func badClaims(list []any, claims []limiter.Claim) error {
	var names []string
	for i, c := range claims {
		if n, ok := list[2*i].(int64); ok && n == -2 {
			names = append(names, c.Limit.Name)
		}
	}
	if len(names) == 0 {
		return errReply
	}
	return fmt.Errorf("%w: %s", errType, strings.Join(names, ", "))
}

// readClaim reads what is left of a claim's limit, or -1 if its key is banned, and
// how long the claim would wait.
func readClaim(list []any, c limiter.Claim) (left, wait int64, ok bool) {
	if len(list) < 2 {
		return 0, 0, false
	}
	wait, ok = number(list, 1)
	if n, isInt := list[0].(int64); !ok || isInt && n == -1 && wait > 0 {
		return -1, wait, ok
	}
	most, horizon := c.Limit.Most(), c.Limit.Horizon()
	if c.Redisson != "" { // its own config decides
		most, horizon = limiter.MaxCount, limiter.MaxWindow
	}
	left, ok = number(list, 0)
	stands := c.Limit.Algorithm == limiter.Distinct && wait == 0 // whatever is left
	ok = ok && left <= most && wait <= horizon.Milliseconds() && (stands || (wait == 0) == (left >= c.Cost))
	return left, wait, ok
}

// number is the whole number at i, not negative.
func number(list []any, i int) (int64, bool) {
	if i >= len(list) {
		return 0, false
	}
	n, ok := list[i].(int64)
	return n, ok && n >= 0
}
