package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/lock"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/bundle"
	"github.com/weir-proxy/weir/proxy/view"
)

const (
	// reloadLockTimeout is how long a node waits for the reload lock.
	reloadLockTimeout = 10 * time.Second
	// reloadLockLease is the lease of the reload lock: a node that dies during its
	// reload does not block the others for longer.
	reloadLockLease = 5 * time.Second
)

var (
	// ErrAlone reports that the other nodes could not be reached, because Redis
	// is unreachable.
	ErrAlone = errors.New("cluster unavailable")
	// ErrBusy reports that another node held the reload lock for too long, or
	// published first while this node was delayed.
	ErrBusy = errors.New("another node is reloading")
	// ErrBehind reports that the other nodes have loaded a newer configuration
	// while this node could not reach Redis.
	ErrBehind = errors.New("the other nodes serve a newer config")
)

// Assume sets the configuration that this node serves, and its number, without asking Redis: at a start
// while Redis is unreachable.
func (n *Node) Assume(hash string, number int64) {
	n.serving.Store(&servedConfig{number: number, hash: hash, withoutCluster: true})
}

// Agree assigns a number, the generation, to c and calls swap with it while
// this node holds the reload lock, and publishes the limits of c in Redis. All
// nodes that load the same configuration get the same number, and each other
// configuration a higher one (compare and set).
//
// swap is called at most once. If Redis is unreachable, or refuses writes, it is still called, with
// the next number that this node would assign, and the error wraps ErrAlone: an
// operator must be able to fix a configuration while Redis is down. If the lock
// cannot be acquired in time, or is lost before publishing, swap is not called,
// nothing is written, and the error wraps ErrBusy.
//
// After ErrAlone, a node calls Agree again when Redis is back. If the other
// nodes serve something newer by then, nothing is changed and the error wraps
// ErrBehind.
func (n *Node) Agree(ctx context.Context, c *config.Config, swap func(number int64)) error {
	ctx, cancel := context.WithTimeout(ctx, reloadLockTimeout)
	defer cancel()
	hold, err := n.locker.Reentrant(n.prefix+"reload").Lock(ctx, lock.WithLease(reloadLockLease))
	if err != nil {
		// refused is not by another node, but by Redis
		if _, refused := errors.AsType[redis.Error](err); !refused && n.rdb.Ping(context.WithoutCancel(ctx)).Err() == nil {
			return fmt.Errorf("%w: %w", ErrBusy, err)
		}
		return n.loadWithoutCluster(c.Hash, swap, err)
	}
	defer hold.Unlock(context.WithoutCancel(ctx))

	_, err = n.Restore(hold.Context())
	var seen int64
	if err == nil {
		seen, err = n.expectedNumber(hold.Context(), c.Hash)
	}
	if err != nil {
		return n.loadWithoutCluster(c.Hash, swap, err)
	}
	if hold.Context().Err() != nil {
		return fmt.Errorf("%w: %w", ErrBusy, context.Cause(hold.Context()))
	}
	number, err := n.publish(hold.Context(), c, seen)
	switch {
	case errors.Is(err, ErrBusy) || errors.Is(err, ErrBehind):
		return err
	case err != nil:
		return n.loadWithoutCluster(c.Hash, swap, err)
	}
	swap(number)
	n.serving.Store(&servedConfig{number: number, hash: c.Hash, agreed: number, definitionArgs: definitionArgs(c)})
	trySend(n.heartbeatNow, struct{}{})
	return nil
}

// loadWithoutCluster loads a configuration without the other nodes.
func (n *Node) loadWithoutCluster(hash string, swap func(number int64), err error) error {
	now := n.serving.Load()
	number := max(now.number, 1) + 1
	if now.hash == "" || now.hash == hash {
		number = max(now.number, 1)
	}
	swap(number)
	n.serving.Store(&servedConfig{number: number, hash: hash, agreed: now.agreed, withoutCluster: true, definitionArgs: now.definitionArgs})
	return fmt.Errorf("%w: %w", ErrAlone, err)
}

// isRetry reports whether a configuration with that hash is loaded again
// because Redis was unreachable the first time.
func (s *servedConfig) isRetry(hash string) bool {
	return s.withoutCluster && s.hash == hash && s.agreed > 0
}

// expectedNumber returns the number that the compare and set expects: the one in Redis
// for a new configuration, the last known one for a configuration that was
// loaded without Redis.
func (n *Node) expectedNumber(ctx context.Context, hash string) (int64, error) {
	if now := n.serving.Load(); now.isRetry(hash) {
		return now.agreed, nil
	}
	return n.Number(ctx)
}

// publish returns the number of a configuration. If it is not the current one,
// and seen is still the current number, it is published with its limits under
// the next number.
func (n *Node) publish(ctx context.Context, c *config.Config, seen int64) (int64, error) {
	args := append([]any{c.Hash, n.options.ID, seen, configTTL.Milliseconds(), n.options.Source}, definitionArgs(c)...)
	reply, err := n.run(ctx, "publish", []string{"config", "limits", "removed"}, args...).Int64Slice()
	if err != nil {
		return 0, fmt.Errorf("publish config: %w", err)
	}
	if len(reply) != 2 {
		return 0, fmt.Errorf("publish config: %w: %v", errReply, reply)
	}
	switch reply[0] {
	case 1:
		return reply[1], nil
	case 2:
		n.markBehind()
		return 0, fmt.Errorf("%w: generation %d was pushed to all nodes; push this file, or write reload: {source: file}", ErrBehind, reply[1])
	}
	if n.serving.Load().isRetry(c.Hash) {
		n.markBehind()
		return 0, fmt.Errorf("%w: to generation %d, while this one knew of %d; its own file is served on until it changes", ErrBehind, reply[1], seen)
	}
	return 0, fmt.Errorf("%w: generation %d was published first", ErrBusy, reply[1])
}

// markBehind records that the other nodes serve something newer.
func (n *Node) markBehind() {
	now := *n.serving.Load()
	now.isBehind = true
	n.serving.Store(&now)
}

// A lostState is the state that Redis has lost: it came back empty, or as an older
// replica.
type lostState struct {
	number    string // found in Redis, and the first entry of the history; empty if none
	head      string
	newNumber int64
	hash      string // "" keeps the existing one
	pushed    bool
	history   []string
	defines   bool
}

// Restore restores the state that Redis has lost and this node knows: the number of
// the configuration, so that generations never decrease, and the pushed configuration
// with its history. It reports whether anything was restored. Every heartbeat checks
// for that; it does not matter which node restores.
func (n *Node) Restore(ctx context.Context) (bool, error) {
	if n.serving.Load().agreed == 0 {
		return false, nil
	}
	pipe := n.rdb.Pipeline()
	config := pipe.HMGet(ctx, n.prefix+"config", "number", "hash", "pushed")
	history := pipe.LRange(ctx, n.prefix+"history", 0, historyLength-1)
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return false, fmt.Errorf("check for data lost by redis: %w", err)
	}
	l, err := n.findLost(config.Val(), history.Val())
	if err != nil || l.newNumber == 0 {
		return false, err
	}
	pushed := map[bool]string{true: "1"}[l.pushed] // empty if it was not
	args := []any{l.number, l.head, strconv.FormatInt(l.newNumber, 10), l.hash, n.options.ID, pushed, configTTL.Milliseconds(), len(l.history)}
	for _, text := range l.history {
		args = append(args, text)
	}
	if l.defines {
		args = append(args, n.serving.Load().definitionArgs...)
	}
	done, err := n.run(ctx, "restore", []string{"config", "limits", "removed", "history"}, args...).Int()
	if err != nil {
		return false, fmt.Errorf("restore data lost by redis: %w", err)
	}
	return done == 1, nil // otherwise another node was faster
}

// findLost compares the state in Redis with what this node knows.
func (n *Node) findLost(found []any, history []string) (l lostState, err error) {
	now, known := n.serving.Load(), n.known.Load()
	if len(found) != 3 {
		return l, fmt.Errorf("%w: %v", errReply, found)
	}
	l.number, _ = found[0].(string)
	number, _ := strconv.ParseInt(l.number, 10, 64) // there may be none
	if len(history) > 0 {
		l.head = history[0]
	}
	_, pushed := found[2].(string)
	switch {
	case number >= now.agreed:
	case n.pushed.Load() == now.agreed && pushed && !slices.Contains(known.texts, l.head) && isLater(l.head, known.texts[0]):
		// A push has reached nodes that did not know the state of this one.
		l.newNumber, l.pushed = now.agreed+1, true
		head, err := withGeneration(l.head, l.newNumber)
		if err != nil {
			return lostState{}, err
		}
		l.history = append([]string{head}, known.texts[:min(len(known.texts), historyLength-1)]...)
	case n.pushed.Load() == now.agreed:
		l.newNumber, l.hash, l.pushed, l.history, l.defines = now.agreed, now.hash, true, known.texts, true
		found := slices.DeleteFunc(history, func(text string) bool { return slices.Contains(known.texts, text) })
		l.history = append(slices.Clip(known.texts), found[:min(len(found), historyLength-len(known.texts))]...)
	case number == 0 && now.withoutCluster: // Agree will publish it, based on this number
		l.newNumber = now.agreed
	case number == 0 || found[1] == now.hash:
		l.newNumber, l.hash, l.defines = now.agreed, now.hash, true
	default: // other nodes serve another configuration by now
		l.newNumber = now.agreed + 1
	}
	return l, nil
}

// isLater reports whether the push of a was begun after that of b.
func isLater(a, b string) bool {
	x, err := decode[Entry](a)
	y, wrong := decode[Entry](b)
	return err == nil && wrong == nil && x.At.After(y.At)
}

// withGeneration returns a history entry with another generation.
func withGeneration(text string, generation int64) (string, error) {
	e, err := decode[Entry](text)
	e.Generation = generation
	return string(encode(e)), err
}

// A knownHistory is the history as last read by this node.
type knownHistory struct {
	generation int64 // the generation served when it was read; 0 if it was not read yet
	texts      []string
}

// prependHistory prepends e to the known history.
func (n *Node) prependHistory(e Entry) {
	texts := []string{string(encode(e))}
	for _, text := range n.known.Load().texts {
		if other, err := n.readEntry(text); err == nil && other.Generation < e.Generation && len(texts) < historyLength {
			texts = append(texts, text)
		}
	}
	n.known.Store(&knownHistory{texts: texts})
}

// Number returns the number of the current configuration; 0 if Redis has none.
func (n *Node) Number(ctx context.Context) (int64, error) {
	number, err := n.rdb.HGet(ctx, n.prefix+"config", "number").Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, fmt.Errorf("read config: %w", err)
	}
	return number, nil
}

// readHistory reads the history, once for each served generation. If Redis does not
// answer, the next heartbeat retries.
func (n *Node) readHistory(ctx context.Context) {
	generation := n.pushed.Load()
	if generation == 0 || n.known.Load().generation == generation {
		return
	}
	texts, err := n.rdb.LRange(ctx, n.prefix+"history", 0, historyLength-1).Result()
	if err != nil || len(texts) == 0 {
		return
	}
	if head, err := n.readEntry(texts[0]); err == nil && head.Generation == generation {
		n.known.Store(&knownHistory{generation, texts})
	}
}

// historyLength is the number of pushes in the history.
const historyLength = 20

// An Entry is a pushed configuration. Its JSON is what is stored.
type Entry struct {
	view.Entry
	Packed     []byte        `json:"bundle"` // by bundle.Seal
	Bundle     bundle.Bundle `json:"-"`
	Unreadable error         `json:"-"` // why there is no Bundle: see bundle.ErrSecret
}

// History returns the last 20 pushes, newest first.
func (n *Node) History(ctx context.Context) ([]Entry, error) {
	texts, err := n.rdb.LRange(ctx, n.prefix+"history", 0, historyLength-1).Result()
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	entries := make([]Entry, len(texts))
	for i, text := range texts {
		if entries[i], err = n.readEntry(text); err != nil {
			return nil, fmt.Errorf("read history: %w", err)
		}
	}
	return entries, nil
}

// Pushed returns the latest push; its Generation is 0 if there is none.
func (n *Node) Pushed(ctx context.Context) (Entry, error) {
	text, err := n.rdb.LIndex(ctx, n.prefix+"history", 0).Result()
	if errors.Is(err, redis.Nil) {
		return Entry{}, nil
	}
	if err != nil {
		return Entry{}, fmt.Errorf("read pushed config: %w", err)
	}
	return n.readEntry(text)
}

// readEntry decodes an entry. One that is encrypted with an unknown secret is Unreadable.
func (n *Node) readEntry(text string) (e Entry, err error) {
	if e, err = decode[Entry](text); err != nil {
		return Entry{}, err
	}
	e.Bundle, err = n.options.Seal.Open(e.Packed, e.Hash)
	if errors.Is(err, bundle.ErrSecret) {
		e.Unreadable = err
	} else if err != nil {
		return e, fmt.Errorf("%w: %w", errReply, err)
	}
	return e, nil
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
