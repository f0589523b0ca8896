package cluster

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// errExpired reports that an allowance expired before it was used; the next step
// obtains a new one.
var errExpired = errors.New("too late")

// keySuffix is what follows the ID of a limit in a key of the store: the window, or what else the
// proxy counts for the limit (refused, shadow:refused), the algorithm if it is not the
// usual one, and what is kept; or the sign of an algorithm that keeps all windows of a limit in one
// string, or that of notes; and whose it is if each proxy counts by itself.
var keySuffix = regexp.MustCompile(`^(?:(?:(?::[0-9a-z]+){1,2}(?::\{[a-z_]+\})?|:\{[a-z_]+\})(:(?:value|permits|base|state))|(?::shadow)?(\{[0-9a-z]\}))(:[0-9a-f-]{36})?$`)

// A deletion is a key of a removed limit, to be deleted.
type deletion struct {
	key       string
	configKey string // key under which Redisson would keep its config
	slot      string // hash tag
	limit     string
}

// parse parses a key of a removed limit; false for every other key.
func (s *Sweep) parse(key string) (deletion, bool) {
	tag, name, found := strings.Cut(strings.TrimPrefix(key, s.prefix+":{"), "}:")
	limit := name
	if i := strings.IndexAny(name, ":{"); i >= 0 {
		limit = name[:i]
	}
	if !found || len(tag) != 32 || !slices.Contains(s.pass.limits, limit) {
		return deletion{}, false
	}
	parts := keySuffix.FindStringSubmatchIndex(name[len(limit):])
	if parts == nil {
		return deletion{}, false
	}
	end := len(key) - len(name) + len(limit) + max(parts[2], parts[4])
	return deletion{key: key, configKey: key[:end], slot: tag, limit: limit}, true
}

// remove deletes the keys of removed limits among keys.
func (s *Sweep) remove(ctx context.Context, t Term, keys []string) (gone int64, err error) {
	bySlot := map[string][]deletion{}
	_, slots := s.rdb.(*redis.ClusterClient)
	for _, key := range keys {
		if d, yes := s.parse(key); yes {
			if !slots {
				d.slot = ""
			}
			bySlot[d.slot] = append(bySlot[d.slot], d)
		}
	}
	if len(bySlot) == 0 {
		return 0, nil
	}
	allowed := allowance{until: strconv.FormatInt(1<<52, 10)}
	if slots {
		if allowed, err = s.allowance(ctx, t); err != nil {
			return 0, err
		}
		allowed.slots = true
	}
	for _, together := range bySlot {
		n, err := s.removeTogether(ctx, t, allowed, together)
		gone += max(n, 0)
		if err != nil {
			return gone, err
		}
	}
	return gone, nil
}

// removeTogether deletes keys of one slot by one call.
func (s *Sweep) removeTogether(ctx context.Context, t Term, allowed allowance, all []deletion) (int64, error) {
	names, args := []string{s.fence.key, s.removed()}, []any{t.Token, allowed.until}
	if allowed.slots {
		names, args[0] = nil, ""
	}
	for _, d := range all {
		if allowed.slots && !slices.Contains(allowed.limits, d.limit) {
			continue // the limit was added again
		}
		names, args = append(names, d.configKey, d.key), append(args, d.limit)
	}
	if len(names) == 0 {
		return 0, nil
	}
	n, err := s.sweep.Run(ctx, s.rdb, names, args...).Int64()
	switch {
	case err != nil:
		return 0, fmt.Errorf("delete keys of removed limits: %w", err)
	case n == -2:
		return 0, ErrDeposed
	case n == -1:
		return 0, fmt.Errorf("delete keys of removed limits: %w", errExpired)
	}
	return n, nil
}
