package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy/config/bundle"
)

// historyLength is the number of pushes in the history.
const historyLength = 20

// An Entry is a pushed configuration. Its JSON is what is stored.
type Entry struct {
	Generation int64         `json:"generation"`
	Hash       string        `json:"hash"`
	Author     string        `json:"author"`
	Node       string        `json:"node"`           // the node that received the push
	At         time.Time     `json:"at"`             // by Redis's clock
	From       int64         `json:"from,omitempty"` // for a rollback, the restored generation
	Packed     []byte        `json:"bundle"`         // by bundle.Seal
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
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return Entry{}, fmt.Errorf("%w: %w", errReply, err)
	}
	e.Bundle, err = n.seal.Open(e.Packed, e.Hash)
	if errors.Is(err, bundle.ErrSecret) {
		e.Unreadable = err
	} else if err != nil {
		return e, fmt.Errorf("%w: %w", errReply, err)
	}
	return e, nil
}

// write encodes e.
func (e Entry) write() []byte {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err) // strings, numbers and times can always be marshalled
	}
	return b
}
