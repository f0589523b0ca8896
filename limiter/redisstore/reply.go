package redisstore

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
)

// errType reports that a key of a window has another type, or holds data that is not
// valid. Reset deletes it. Nothing was taken, and other decisions are not affected.
var errType = errors.New("a key in Redis is of another type than its limit keeps there; reset it")

// numbersOf converts a reply of the client, a list of integers or one, to a list.
func numbersOf(reply any) ([]int64, error) {
	if n, ok := reply.(int64); ok {
		return []int64{n}, nil
	}
	list, ok := reply.([]any)
	if !ok {
		return nil, wire.ErrReply
	}
	out := make([]int64, len(list))
	for i, v := range list {
		if out[i], ok = v.(int64); !ok {
			return nil, wire.ErrReply
		}
	}
	return out, nil
}

// readTime reads the time at the start of a reply.
func readTime(list []int64) (time.Time, []int64, error) {
	if len(list) == 0 || list[0] <= 0 {
		return time.Time{}, nil, wire.ErrReply
	}
	return time.UnixMilli(list[0]), list[1:], nil
}

// readOne reads a reply that contains one decision.
func readOne(reply any, claims []limiter.Claim, d *limiter.Decision) error {
	at, rest, err := timedNumbers(reply)
	if err != nil {
		return err
	}
	rest, err = readDecision(rest, at, claims, d)
	if err == nil && len(rest) > 0 {
		err = wire.ErrReply
	}
	return err
}

// readDecision reads one decision at the start of list into d, and checks the range of
// every number. It returns the rest of list, also with an error, which concerns this decision alone.
func readDecision(list []int64, at time.Time, claims []limiter.Claim, d *limiter.Decision) ([]int64, error) {
	if len(list) < 1+2*len(claims) {
		return nil, wire.ErrReply
	}
	allowed, rest := list[0], list[1+2*len(claims):]
	list = list[1 : 1+2*len(claims)]
	if allowed == 2 {
		return rest, badClaims(list, claims)
	}
	if allowed < 0 || allowed > 2 {
		return rest, wire.ErrReply
	}
	*d = limiter.Decision{Allowed: allowed == 1, At: at, Outcomes: d.Outcomes[:0]}
	for i := range claims {
		left, wait, ok := readClaim(list[2*i], list[2*i+1], &claims[i])
		if !ok || d.Allowed && left < 0 {
			return rest, wire.ErrReply
		}
		o := limiter.Outcome{
			Allowed:   d.Allowed || wait == 0,
			Remaining: max(0, left),
			Wait:      milliseconds(wait),
			Banned:    left < 0,
		}
		if !o.Allowed {
			d.Wait = max(d.Wait, o.Wait)
		}
		d.Outcomes = append(d.Outcomes, o)
	}
	if !d.Allowed && d.Wait == 0 {
		return rest, wire.ErrReply // refused, but no limit refuses
	}
	return rest, nil
}

// badClaims returns the names of the limits whose windows are not readable.
func badClaims(list []int64, claims []limiter.Claim) error {
	var names []string
	for i, c := range claims {
		if list[2*i] == -2 {
			names = append(names, c.Limit.Name)
		}
	}
	if len(names) == 0 {
		return wire.ErrReply
	}
	return fmt.Errorf("%w: %s", errType, strings.Join(names, ", "))
}

// readClaim checks the remaining permits of a claim's limit, -1 if its key is banned, and
// the wait of the claim.
func readClaim(left, wait int64, c *limiter.Claim) (int64, int64, bool) {
	if left == -1 && wait > 0 {
		return left, wait, true
	}
	most, horizon := c.Limit.Capacity(), c.Limit.Horizon()
	if c.RedissonName != "" { // its config in Redis decides
		most, horizon = limiter.MaxCount, limiter.MaxWindow
	}
	isActive := c.Limit.Algorithm.HasValues() && wait == 0 // whatever remains
	ok := left >= 0 && wait >= 0 && left <= most && wait <= horizon.Milliseconds() && (isActive || (wait == 0) == (left >= c.Cost))
	return left, wait, ok
}
