package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

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
type Once struct {
	rdb    redis.UniversalClient // nil for memory
	prefix string

	mu     sync.Mutex // guards what follows
	values map[string]onceValue
	names  []string // oldest first
}

// A onceValue is a value in memory.
type onceValue struct {
	value []byte
	until time.Time
}

// NewOnce returns the store of a node of a cluster or, if rdb is nil, of a single process.
func NewOnce(rdb redis.UniversalClient, prefix string) *Once {
	return &Once{rdb: rdb, prefix: prefix + ":{cluster}:once:", values: map[string]onceValue{}}
}

// Claim stores value under a name for a minute, and returns nil. If there is a value already, it returns
// that.
func (o *Once) Claim(ctx context.Context, name string, value []byte) ([]byte, error) {
	if o.rdb == nil {
		return o.claimInMemory(name, value, time.Now()), nil
	}
	ctx, cancel := context.WithTimeout(ctx, heartbeatInterval)
	defer cancel()
	for range 2 { // a value may expire between the two commands
		switch done, err := o.rdb.SetNX(ctx, o.prefix+name, value, claimTTL).Result(); {
		case err != nil:
			return nil, fmt.Errorf("claim: %w", err)
		case done:
			return nil, nil
		}
		switch found, err := o.rdb.Get(ctx, o.prefix+name).Bytes(); {
		case err == nil:
			return found, nil
		case !errors.Is(err, redis.Nil):
			return nil, fmt.Errorf("claim: %w", err)
		}
	}
	return nil, errors.New("claim: the value expires again and again")
}

// Put replaces a claim by a value that is kept for a day; no value removes it.
func (o *Once) Put(ctx context.Context, name string, value []byte) error {
	switch {
	case o.rdb == nil:
		o.putInMemory(name, value, time.Now())
		return nil
	case len(value) == 0:
		return o.rdb.Del(ctx, o.prefix+name).Err()
	}
	return o.rdb.Set(ctx, o.prefix+name, value, onceTTL).Err()
}

func (o *Once) claimInMemory(name string, value []byte, now time.Time) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	v, found := o.values[name]
	if found && now.Before(v.until) {
		return v.value
	}
	if !found {
		o.names = append(o.names, name)
	}
	o.values[name] = onceValue{value, now.Add(claimTTL)}
	for len(o.names) > maxOnce {
		delete(o.values, o.names[0])
		o.names = o.names[1:]
	}
	return nil
}

func (o *Once) putInMemory(name string, value []byte, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, found := o.values[name]; !found { // forgotten, because there were many others
		return
	}
	v := onceValue{value, now.Add(onceTTL)}
	if len(value) == 0 {
		v.until = now
	}
	o.values[name] = v
}

// saltTTL is how long the salt is kept after a node has last read it.
const saltTTL = 30 * 24 * time.Hour

// Salt returns the salt for the hashes in logs. It is common to all nodes that share
// rdb and prefix, so that a key has the same hash in all their logs; the first caller
// creates it. Each call extends its life by a month. It only protects logs from
// readers without access to Redis: key names in the store do not depend on it, so
// counts survive its loss.
func Salt(ctx context.Context, rdb redis.UniversalClient, prefix string, own [32]byte) (salt [32]byte, err error) {
	key := prefix + ":{cluster}:salt"
	var agreed *redis.StringCmd
	_, err = rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.SetNX(ctx, key, own[:], saltTTL)
		agreed = p.GetEx(ctx, key, saltTTL)
		return nil
	})
	if err != nil {
		return own, fmt.Errorf("agree on log salt: %w", err)
	}
	text := agreed.Val()
	if len(text) != len(salt) {
		return own, fmt.Errorf("agree on log salt: %s holds %d bytes, want %d", key, len(text), len(salt))
	}
	copy(salt[:], text)
	return salt, nil
}
