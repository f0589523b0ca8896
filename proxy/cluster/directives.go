package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy/directive"
)

// ErrTooManyDirectives reports that there are directive.Max directives already.
var ErrTooManyDirectives = errors.New("too many bans of networks and plans of keys; end some, or write them in the configuration")

const (
	// directivesInterval is how often a node reads the directives.
	directivesInterval = time.Second
	// awayTimeout is how long a change waits for Redis if it did not answer the last time.
	awayTimeout = 100 * time.Millisecond
)

// Directives are the directives of operators, of which each node has a copy. Other nodes follow a change within
// directivesInterval, or when they are asked to (Question.Directives). A change that is made while Redis is unreachable holds on this node, and is applied
// when it is back. Without Redis the copy is all there is. It is safe for concurrent use.
type Directives struct {
	keyspace // without a client for a single process
	changed  func(*directive.Set)

	syncing chan struct{} // of length 1: held by Sync

	mu      sync.Mutex // guards what follows; never held over I/O
	known   map[string]directive.Directive
	waiting []directive.Directive // changes that Redis has not got yet, in order; one without a time ends
	failed  bool                  // Redis did not answer the last Sync
	seen    int64                 // the last change that known has, by Redis's clock, in ms since 1970
	kept    int64                 // the last one that Redis has, which may have lost others
}

// NewDirectives returns the directives of the nodes that share rdb and prefix. changed is called with the set at
// each change; it must not block.
func NewDirectives(rdb redis.UniversalClient, prefix string, changed func(*directive.Set)) *Directives {
	return &Directives{
		keyspace: newKeyspace(rdb, prefix), changed: changed, syncing: make(chan struct{}, 1), known: map[string]directive.Directive{},
	}
}

// Put makes one hold until its time is over.
func (d *Directives) Put(ctx context.Context, one directive.Directive) (everywhere bool, err error) {
	if found, all := d.holds(one.Name()); !found && all >= directive.Max {
		return false, ErrTooManyDirectives
	}
	everywhere = d.change(ctx, one)
	if _, held := d.Settled(one); everywhere && !held && time.Now().Before(one.Until) { // other nodes were faster
		return false, ErrTooManyDirectives
	}
	return everywhere, nil
}

// Remove ends the directive of the name of one. found reports whether it held; if it did not, nothing is changed.
func (d *Directives) Remove(ctx context.Context, one directive.Directive) (found, everywhere bool) {
	if found, _ = d.holds(one.Name()); !found {
		return false, true
	}
	one.Until = time.Time{}
	return true, d.change(ctx, one)
}

// holds reports whether a directive of that name holds, and how many do. Those that are over are forgotten.
func (d *Directives) holds(name string) (found bool, all int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.known, func(_ string, one directive.Directive) bool { return !one.Until.After(time.Now()) })
	_, found = d.known[name]
	return found, len(d.known)
}

// change applies a change on this node, and then on all.
func (d *Directives) change(ctx context.Context, one directive.Directive) (everywhere bool) {
	d.mu.Lock()
	d.waiting = append(d.waiting, one)
	d.applyLocked(one)
	d.publishLocked()
	failed := d.failed
	d.mu.Unlock()
	within := map[bool]time.Duration{true: awayTimeout, false: 2 * heartbeatInterval}[failed]
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	return d.Sync(ctx) == nil
}

// All returns the directives that hold.
func (d *Directives) All() []directive.Directive {
	d.mu.Lock()
	defer d.mu.Unlock()
	return directive.NewSet(slices.Collect(maps.Values(d.known)), time.Now()).All()
}

func (d *Directives) applyLocked(one directive.Directive) {
	if d.known[one.Name()] = one; one.Until.IsZero() {
		delete(d.known, one.Name())
	}
}

func (d *Directives) publishLocked() {
	d.changed(directive.NewSet(slices.Collect(maps.Values(d.known)), time.Now()))
}

// Run follows the directives until ctx is done.
func (d *Directives) Run(ctx context.Context) {
	poll(ctx, directivesInterval, func() (done bool) {
		_ = d.Sync(ctx) // while Redis is unreachable, the copy is kept
		return false
	})
}

// Settled reports whether no change waits for Redis, and whether the changes to all hold then: none has ended or had no room.
func (d *Directives) Settled(all ...directive.Directive) (settled, hold bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.waiting) == 0, !slices.ContainsFunc(all, func(one directive.Directive) bool {
		known, held := d.known[one.Name()]
		return held != !one.Until.IsZero() || held && !known.At.Equal(one.At)
	})
}

// Sync sends the changes that wait, and reads all directives.
func (d *Directives) Sync(ctx context.Context) (err error) {
	select {
	case d.syncing <- struct{}{}:
		defer func() { <-d.syncing }()
	case <-ctx.Done():
		return fmt.Errorf("read directives: %w", context.Cause(ctx))
	}
	for lost := true; lost && err == nil; {
		lost, err = d.syncOnce(ctx)
	}
	return err
}

// syncOnce is Sync. If Redis has lost changes, what restores them waits then.
func (d *Directives) syncOnce(ctx context.Context) (lost bool, err error) {
	d.mu.Lock()
	sent, seen, kept := slices.Clone(d.waiting), d.seen, d.kept
	d.mu.Unlock()
	all, last, err := d.exchange(ctx, sent, seen, kept)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed = err != nil; d.failed {
		return false, fmt.Errorf("read directives: %w", err)
	}
	if last.before >= seen || last.before == kept { // otherwise none was made
		d.waiting = d.waiting[len(sent):]
	}
	if d.kept = last.now; last.before < seen {
		d.waiting = append(restoring(d.known, all), d.waiting...)
		lost = len(d.waiting) > 0
	}
	if all != nil {
		d.known, d.seen = all, max(seen, last.now)
	}
	for _, one := range d.waiting {
		d.applyLocked(one)
	}
	d.publishLocked()
	return lost, nil
}

// restoring returns the changes that make what Redis has what this node knows.
func restoring(known, all map[string]directive.Directive) (changes []directive.Directive) {
	for name, one := range known {
		if _, found := all[name]; !found && one.Until.After(time.Now()) {
			changes = append(changes, one)
		}
	}
	for name, one := range all {
		if _, holds := known[name]; !holds {
			one.Until = time.Time{}
			changes = append(changes, one)
		}
	}
	return changes
}

// exchange sends changes, and returns all directives by name, nil without Redis, and when the last change was before
// these and is now. seen is the last one that this node knows, kept the last one of Redis. Times of directives are converted
// from Redis's clock.
func (d *Directives) exchange(ctx context.Context, changes []directive.Directive, seen, kept int64) (all map[string]directive.Directive, last struct{ before, now int64 }, err error) {
	if d.rdb == nil {
		return nil, last, nil
	}
	ctx, cancel := context.WithTimeout(ctx, heartbeatInterval)
	defer cancel()
	args := []any{directive.Max, configTTL.Milliseconds(), seen, kept}
	for _, c := range changes {
		args = append(args, c.Name(), max(time.Until(c.Until), 0).Milliseconds(), encode(c))
	}
	reply, err := d.run(ctx, "directives", []string{"directives", "directives:changed"}, args...).StringSlice()
	if err != nil || len(reply) == 0 {
		return nil, last, cmp.Or(err, errReply)
	}
	var now int64
	_, err = fmt.Sscan(reply[0], &now, &last.before, &last.now)
	here, all := time.Now(), map[string]directive.Directive{}
	for _, held := range reply[1:] {
		var one directive.Directive
		ends, text, _ := strings.Cut(held, " ")
		at, wrong := strconv.ParseInt(ends, 10, 64)
		err = errors.Join(err, wrong, json.Unmarshal([]byte(text), &one))
		one.Until = here.Add(time.Duration(at-now) * time.Millisecond).UTC()
		all[one.Name()] = one
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", errReply, err)
	}
	return all, last, err
}

const (
	// claimTTL is how long a claim lasts that is not replaced, because its node has died.
	claimTTL = time.Minute
	// onceTTL is how long values are kept, and maxOnce how many in memory; beyond that the oldest
	// are forgotten.
	onceTTL = 24 * time.Hour
	maxOnce = 1000
)

// A Once stores values by name, of which the first claim wins: in Redis for all nodes, or in memory for
// a single process. It is safe for concurrent use.
type Once struct{ state }

// NewOnce returns the store of a node of a cluster or, if rdb is nil, of a single process.
func NewOnce(rdb redis.UniversalClient, prefix string) Once { return Once{newState(rdb, prefix)} }

// Claim implements state.
func (r redisState) Claim(ctx context.Context, name string, value []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatInterval)
	defer cancel()
	const script = "return redis.call('GET', KEYS[1]) or not redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])" // false is no reply
	found, err := r.rdb.Eval(ctx, script, []string{r.prefix + "once:" + name}, value, claimTTL.Milliseconds()).Text()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	return []byte(found), nil
}

// Put implements state.
func (r redisState) Put(ctx context.Context, name string, value []byte) error {
	if len(value) == 0 {
		return r.rdb.Del(ctx, r.prefix+"once:"+name).Err()
	}
	return r.rdb.Set(ctx, r.prefix+"once:"+name, value, onceTTL).Err()
}
