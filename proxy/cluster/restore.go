package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy/config/bundle"
	"github.com/weir-proxy/weir/proxy/view"
)

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
	case n.pushed.Load() == now.agreed && pushed && !slices.Contains(known.texts, l.head):
		// A push has reached nodes that did not know the state of this one.
		l.newNumber, l.pushed = now.agreed+1, true
		head, err := withGeneration(l.head, l.newNumber)
		if err != nil {
			return lostState{}, err
		}
		l.history = append([]string{head}, known.texts[:min(len(known.texts), historyLength-1)]...)
	case n.pushed.Load() == now.agreed:
		l.newNumber, l.hash, l.pushed, l.history, l.defines = now.agreed, now.hash, true, known.texts, true
	case number == 0 && now.withoutCluster: // Agree will publish it, based on this number
		l.newNumber = now.agreed
	case number == 0 || found[1] == now.hash:
		l.newNumber, l.hash, l.defines = now.agreed, now.hash, true
	default: // other nodes serve another configuration by now
		l.newNumber = now.agreed + 1
	}
	return l, nil
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
