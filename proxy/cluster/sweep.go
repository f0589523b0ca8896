package cluster

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/view"
)

const (
	// DefaultGrace is how long the counts of a removed limit are kept, in case it
	// is added again.
	DefaultGrace = 10 * time.Minute
	// sweepInterval is the pause between two steps of a sweep.
	sweepInterval = 2 * time.Second
	// sweepScans is the number of SCAN calls of a step, and sweepCount their
	// COUNT: a call takes Redis well below a millisecond, and all of them less
	// than 1% of its time.
	sweepScans, sweepCount = 20, 250
	// allowanceTTL is how long an allowance is valid in a Redis Cluster.
	allowanceTTL = time.Second
)

// A Sweep is a garbage collection: it deletes the counts of limits that were removed from the
// configuration longer than a grace period ago. Such keys expire anyway, but those of a limit with a
// window of 365 days only after a year.
//
// Each step scans a bounded number of keys. Only keys that the store writes for
// such a limit under our prefix are deleted; a limit that is added again in the
// meantime, or is shared with Java programs, loses nothing. The sweep waits while
// a node serves an older configuration, because it may still count for the limit.
//
// On a single server, the deleting script itself checks the leader and the removed
// limits. In a Redis Cluster the keys are on other servers than this state: there
// an allowance is obtained first, and the deleting script refuses it after a
// second, by the clock of its server.
type Sweep struct {
	keyspace
	keys  string // the prefix of all keys
	grace time.Duration
	nodes func(context.Context) ([]view.Member, error)

	pass *pass // in progress; nil for none
}

// A pass is one scan of all keys.
type pass struct {
	term    Term
	limits  []string // whose keys are deleted
	servers []*redis.Client
	cursor  uint64 // SCAN cursor on the first of servers
	deleted int64  // keys deleted
}

// NewSweep returns the sweep of a cluster; nodes returns its live nodes.
func NewSweep(rdb redis.UniversalClient, prefix string, grace time.Duration, nodes func(context.Context) ([]view.Member, error)) *Sweep {
	return &Sweep{keyspace: newKeyspace(rdb, prefix), keys: prefix, grace: grace, nodes: nodes}
}

// Task returns the leader task of the sweep.
func (s *Sweep) Task() Task { return Task{Name: "sweep", Every: sweepInterval, Run: s.step} }

// step continues the current pass, or starts one if there are removed limits.
func (s *Sweep) step(ctx context.Context, t Term) (string, error) {
	allowed, err := s.allowance(ctx, t)
	if err != nil || len(allowed.limits) == 0 {
		s.pass = nil
		return "", err
	}
	if same, err := s.allServeCurrent(ctx); err != nil || !same {
		return "waits until all nodes serve the last configuration", err
	}
	servers, err := s.servers(ctx)
	if err != nil {
		return "", err
	}
	if s.pass == nil || s.pass.term != t || !slices.Contains(servers, s.pass.servers[0]) { // it may not be a master any more
		s.pass = &pass{term: t, limits: allowed.limits, servers: servers}
	}
	return s.scan(ctx, t)
}

// scan scans the keys of one step.
func (s *Sweep) scan(ctx context.Context, t Term) (string, error) {
	p := s.pass
	for range sweepScans {
		keys, next, err := p.servers[0].Scan(ctx, p.cursor, s.keys+":{"+strings.Repeat("?", 32)+"}:*", sweepCount).Result()
		if err != nil {
			return "", fmt.Errorf("look for keys of removed limits: %w", err)
		}
		gone, err := s.remove(ctx, t, keys)
		p.deleted += gone
		if err != nil {
			return "", err
		}
		if p.cursor = next; next != 0 {
			continue
		}
		if p.servers = p.servers[1:]; len(p.servers) == 0 {
			return s.finish(ctx, t)
		}
	}
	return fmt.Sprintf("deleted %d keys of %d removed limits so far", p.deleted, len(p.limits)), nil
}

// finish removes the limits whose keys are deleted from the list of removed
// limits.
func (s *Sweep) finish(ctx context.Context, t Term) (string, error) {
	p := s.pass
	s.pass = nil
	args := []any{s.grace.Milliseconds()}
	for _, name := range p.limits {
		args = append(args, name)
	}
	if _, err := s.runLeading(ctx, t, "swept", []string{"removed"}, args...); err != nil {
		return "", fmt.Errorf("forget removed limits: %w", err)
	}
	return fmt.Sprintf("deleted %d keys of %d removed limits", p.deleted, len(p.limits)), nil
}

// An allowance permits the deletion of the keys of some limits for a short
// time.
type allowance struct {
	until  string // by Redis's clock
	limits []string
	slots  bool // in a Redis Cluster: the keys of one slot at a time
}

// allowance returns the limits that were removed long enough ago.
func (s *Sweep) allowance(ctx context.Context, t Term) (allowance, error) {
	reply, err := s.runLeading(ctx, t, "allow", []string{"removed"}, allowanceTTL.Milliseconds(), s.grace.Milliseconds())
	if err != nil {
		return allowance{}, fmt.Errorf("read removed limits: %w", err)
	}
	parts, ok := reply.([]any)
	if !ok || len(parts) != 2 {
		return allowance{}, fmt.Errorf("read removed limits: %w: %v", errReply, reply)
	}
	var a allowance
	a.until, _ = parts[0].(string)
	names, _ := parts[1].([]any)
	for _, name := range names {
		text, _ := name.(string)
		a.limits = append(a.limits, text)
	}
	return a, nil
}

// allServeCurrent reports whether all nodes serve the current configuration.
func (s *Sweep) allServeCurrent(ctx context.Context) (bool, error) {
	hash, err := s.rdb.HGet(ctx, s.prefix+"config", "hash").Result()
	if err != nil {
		return false, fmt.Errorf("read config: %w", err)
	}
	nodes, err := s.nodes(ctx)
	other := slices.ContainsFunc(nodes, func(m view.Member) bool { return m.Hash != hash })
	return len(nodes) > 0 && !other, err
}

// servers returns the servers to scan.
func (k keyspace) servers(ctx context.Context) (all []*redis.Client, err error) {
	cluster, is := k.rdb.(*redis.ClusterClient)
	if !is {
		return []*redis.Client{k.rdb.(*redis.Client)}, nil
	}
	var mu sync.Mutex
	err = cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, c)
		return nil
	})
	if err != nil || len(all) == 0 {
		return nil, fmt.Errorf("find masters: %w", err)
	}
	return all, nil
}

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
	tag, name, found := strings.Cut(strings.TrimPrefix(key, s.keys+":{"), "}:")
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
	names, args := []string{s.prefix + "leader", s.prefix + "removed"}, []any{t.Token, allowed.until}
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
	n, err := s.scripts["sweep"].Run(ctx, s.rdb, names, args...).Int64()
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

const (
	// scanCount is the COUNT of a SCAN call, which takes Redis well below a
	// millisecond; maxScanned is the maximum number of keys scanned.
	scanCount, maxScanned = 500, 100_000
	// maxCounted is the maximum number of results.
	maxCounted = 2_000
)

// A CountedKey is a key that a limit has counts of.
type CountedKey struct {
	Limit string // ROUTE.LIMIT
	Key   limiter.Key
}

// Counted returns the keys in Redis that these limits have counts of. If whole is
// false, the result is a sample, because Redis has too many keys to scan. It
// costs up to 200 SCAN calls, and changes nothing. Windows of one limit that share a
// string are returned together, although it may hold only some of them.
func (n *Node) Counted(ctx context.Context, limits map[string]bool) (all []CountedKey, whole bool, err error) {
	servers, err := n.servers(ctx)
	if err != nil {
		return nil, false, err
	}
	found, boxes := map[CountedKey]bool{}, boxesOf(limits)
	looked := 0
	for _, server := range servers {
		cursor := uint64(0)
		for {
			if looked >= maxScanned || len(found) >= maxCounted {
				return all, false, nil
			}
			keys, next, err := server.Scan(ctx, cursor, n.options.Prefix+":{"+strings.Repeat("?", 2*len(limiter.Key{}))+"}:*", scanCount).Result()
			if err != nil {
				return nil, false, fmt.Errorf("look for counts: %w", err)
			}
			for _, key := range keys {
				c, ok := parseCounted(strings.TrimPrefix(key, n.options.Prefix+":"))
				if !ok {
					continue
				}
				for _, c.Limit = range boxes[c.Limit] {
					if !found[c] {
						found[c] = true
						all = append(all, c)
					}
				}
			}
			looked += scanCount
			if cursor = next; cursor == 0 {
				break
			}
		}
	}
	return all, true, nil
}

// boxesOf lists limits by what names them in keys: the whole name, and what it has before
// its window, followed by a brace, in the name of a string that several windows share.
func boxesOf(limits map[string]bool) map[string][]string {
	all := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		all[name], all[name+"{"] = append(all[name], name), append(all[name+"{"], name)
		if i := strings.LastIndexByte(name, ':'); i > 0 {
			all[name[:i]+"{"] = append(all[name[:i]+"{"], name)
		}
	}
	return all
}

// parseCounted reads {KEY}:ROUTE.LIMIT:WINDOW and what follows, or {KEY}:BOX{LAYOUT}, of
// which Limit is BOX{: see boxesOf. Notes, BOX{n}, lie under subjects, which are not counted.
func parseCounted(text string) (c CountedKey, ok bool) {
	key, rest, ok := strings.Cut(strings.TrimPrefix(text, "{"), "}:")
	b, err := hex.DecodeString(key)
	if !ok || err != nil || len(b) != len(c.Key) {
		return c, false
	}
	if box, sign, packed := strings.Cut(rest, "{"); packed && !strings.HasSuffix(box, ":") {
		return CountedKey{box + "{", limiter.Key(b)}, sign != "n}"
	}
	name, rest, _ := strings.Cut(rest, ":")
	window, _, _ := strings.Cut(rest, ":")
	return CountedKey{name + ":" + window, limiter.Key(b)}, true
}
