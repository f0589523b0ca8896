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

	"github.com/weir-proxy/weir/proxy/config/bundle"
)

// historyLength is the number of pushes in the history.
const historyLength = 20

// An Entry is a pushed configuration.
type Entry struct {
	Generation int64         `json:"generation"`
	Hash       string        `json:"hash"`
	Author     string        `json:"author"`
	Node       string        `json:"node"`           // the node that received the push
	At         time.Time     `json:"at"`             // by Redis's clock
	From       int64         `json:"from,omitempty"` // for a rollback, the restored generation
	Bundle     bundle.Bundle `json:"-"`
}

// storedEntry is the encoding of an Entry in Redis.
type storedEntry struct {
	Entry
	Packed []byte `json:"bundle"`
}

// History returns the last 20 pushes, newest first.
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

// Pushed returns the latest push; its Generation is 0 if there is none.
func (n *Node) Pushed(ctx context.Context) (Entry, error) {
	text, err := n.rdb.LIndex(ctx, n.prefix+"history", 0).Result()
	if errors.Is(err, redis.Nil) {
		return Entry{}, nil
	}
	if err != nil {
		return Entry{}, fmt.Errorf("read pushed config: %w", err)
	}
	return readEntry(text)
}

func readEntry(text string) (Entry, error) {
	var s storedEntry
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return Entry{}, fmt.Errorf("%w: %w", errReply, err)
	}
	b, err := unpackBundle(s.Packed)
	s.Bundle = b
	return s.Entry, err
}

// write encodes e for Redis.
func (e Entry) write(packed []byte) []byte {
	b, err := json.Marshal(storedEntry{e, packed})
	if err != nil {
		panic(err) // strings, numbers and times can always be marshalled
	}
	return b
}

// packBundle compresses a bundle, which may hold long lists.
func packBundle(b bundle.Bundle) []byte {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if err := errors.Join(json.NewEncoder(w).Encode(b), w.Close()); err != nil {
		panic(err) // writing to memory cannot fail
	}
	return packed.Bytes()
}

// unpackBundle decompresses a bundle.
func unpackBundle(packed []byte) (b bundle.Bundle, err error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return b, fmt.Errorf("%w: %w", errReply, err)
	}
	const most = 8 * bundle.MaxSize // of JSON, which escapes
	if err := json.NewDecoder(io.LimitReader(r, most)).Decode(&b); err != nil {
		return b, fmt.Errorf("%w: %w", errReply, err)
	}
	return b, nil
}
