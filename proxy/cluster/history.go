package cluster

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy/config"
)

// historyLength is how many pushes are known of.
const historyLength = 20

// An Entry is one configuration that was pushed.
type Entry struct {
	Generation int64         `json:"generation"`
	Hash       string        `json:"hash"`
	Author     string        `json:"author"`
	Node       string        `json:"node"`           // that was asked to push
	At         time.Time     `json:"at"`             // by Redis's clock
	From       int64         `json:"from,omitempty"` // not 0: the generation that was gone back to
	Bundle     config.Bundle `json:"-"`
}

// stored is an Entry as it lies in Redis.
type stored struct {
	Entry
	Packed []byte `json:"bundle"`
}

// History is what was pushed, the last first, at most the last 20.
func (n *Node) History(ctx context.Context) ([]Entry, error) {
	texts, err := n.rdb.LRange(ctx, n.prefix+"history", 0, historyLength-1).Result()
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	entries := make([]Entry, len(texts))
	for i, text := range texts {
		if entries[i], err = readEntry(text); err != nil {
			return nil, fmt.Errorf("read history: %w", err)
		}
	}
	return entries, nil
}

// Pushed is what was pushed last; its Generation is 0 when nothing was.
func (n *Node) Pushed(ctx context.Context) (Entry, error) {
	text, err := n.rdb.LIndex(ctx, n.prefix+"history", 0).Result()
	if errors.Is(err, redis.Nil) {
		return Entry{}, nil
	}
	if err != nil {
		return Entry{}, fmt.Errorf("read what was pushed: %w", err)
	}
	return readEntry(text)
}

func readEntry(text string) (Entry, error) {
	var s stored
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return Entry{}, fmt.Errorf("%w: %w", errReply, err)
	}
	b, err := unpackBundle(s.Packed)
	s.Bundle = b
	return s.Entry, err
}

// write is e as it lies in Redis.
func (e Entry) write(packed []byte) []byte {
	b, err := json.Marshal(stored{e, packed})
	if err != nil {
		panic(err) // texts, numbers and a time can be written
	}
	return b
}

// packBundle packs a bundle tightly: it may hold long lists.
func packBundle(b config.Bundle) []byte {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if err := errors.Join(json.NewEncoder(w).Encode(b), w.Close()); err != nil {
		panic(err) // texts can be written to memory
	}
	return packed.Bytes()
}

// unpackBundle is the bundle that zip has packed.
func unpackBundle(packed []byte) (b config.Bundle, err error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return b, fmt.Errorf("%w: %w", errReply, err)
	}
	const most = 8 * config.MaxBundle // of JSON, which escapes
	if err := json.NewDecoder(io.LimitReader(r, most)).Decode(&b); err != nil {
		return b, fmt.Errorf("%w: %w", errReply, err)
	}
	return b, nil
}
