package redisstore

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/weir-proxy/weir/limiter"
)

// names are the names of a store's keys in Redis.
type names struct {
	prefix string
	client string // suffix of the keys of limits with the scope PerClient
}

// newNames derives the client's suffix from client, or makes a random one. It is a UUID,
// as in Redisson, so that no client can produce the name of another window.
func newNames(prefix, client string) names {
	id := limiter.KeyOf("client", client)
	if client == "" {
		id = newID()
	}
	return names{prefix: prefix, client: uuid.UUID(id).String()}
}

func newID() (id [16]byte) {
	binary.LittleEndian.PutUint64(id[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64())
	return id
}

// keyCount returns the number of keys of a window of an algorithm: value, permits and base, or a
// single state. A token bucket has the keys of Redisson. The other algorithms have names
// with braces, which the name of a limit cannot contain. The name of a state is short,
// because it is a third of a key's memory.
func keyCount(a limiter.Algorithm) int {
	if a.IsPacked() {
		return 1
	}
	return 3
}

// append appends the name of the i-th key of a claim's window. A limiter shared with Redisson has its own keys, see
// redissonKeysOf, of which this is the first.
func (n names) append(out []byte, c *limiter.Claim, i int) []byte {
	if c.RedissonName != "" {
		return append(out, c.RedissonName...)
	}
	out = append(append(out, n.prefix...), ":{"...)
	out = append(hex.AppendEncode(out, c.Key[:]), "}:"...)
	name, a := c.Limit.Name, c.Limit.Algorithm
	if a.IsPacked() {
		name, _ = splitName(name)
	}
	out = appendSuffix(append(out, name...), a, i)
	if c.Limit.Scope == limiter.PerClient {
		out = append(append(out, ':'), n.client...)
	}
	return out
}

// appendSuffix appends what follows the name of a limit, or of a box, in the i-th key of a window.
func appendSuffix(out []byte, a limiter.Algorithm, i int) []byte {
	switch {
	case a.IsPacked():
		return append(out, '{', a.Sign(), '}')
	case !a.IsRedisson():
		out = append(append(append(out, ":{"...), a.String()...), '}')
	}
	return append(out, windowKey(i)...)
}

// windowKey returns the suffix of the i-th key of a window that has three.
func windowKey(i int) string { return [...]string{":value", ":permits", ":base"}[i] }

// splitName splits the name of a limit whose state is one string. Windows of one key
// share a string, their box, if the part before the last colon is the same. The tag after
// it distinguishes them within the box.
func splitName(limit string) (box, tag string) {
	i := strings.LastIndexByte(limit, ':')
	if i <= 0 || i == len(limit)-1 || len(limit)-i > maxTag {
		return limit, ""
	}
	return limit[:i], limit[i+1:]
}

// maxTag is the maximum length of a tag, which is stored in one byte; 255 marks the
// beginning of a box.
const maxTag = 254

// scopeOtherClient is the scope of a PerClient window of another client.
const scopeOtherClient = limiter.PerClient + 1

// parseWindow parses the message that a script publishes: the number of the algorithm and
// the window's first key and, after a space, the tag of a window in a box; or the name of
// a limiter shared with Redisson.
func (n names) parseWindow(message string) (id windowID, ok bool) {
	number, name, _ := strings.Cut(message, ":")
	if number == "shared" {
		return windowID{slot: slot{redisson: name}}, true
	}
	a, err := strconv.ParseUint(number, 10, 8)
	if id.algorithm = limiter.Algorithm(a); err != nil || id.algorithm >= limiter.NumAlgorithms || strconv.FormatUint(a, 10) != number {
		return id, false
	}
	name, tag, boxed := strings.Cut(name, " ")
	if boxed != id.algorithm.IsPacked() {
		return id, false
	}
	name, ok = strings.CutPrefix(name, n.prefix+":{")
	if !ok {
		return id, false
	}
	hex, name, ok := strings.Cut(name, "}:")
	if !ok || !readKey(hex, &id.slot.key) {
		return id, false
	}
	if i := len(name) - len(n.client); i > 0 && uuid.Validate(name[i:]) == nil {
		id.scope = scopeOtherClient
		if name[i:] == n.client {
			id.scope = limiter.PerClient
		}
		name = strings.TrimSuffix(name[:i], ":")
	}
	id.limit, ok = strings.CutSuffix(name, string(appendSuffix(nil, id.algorithm, 0)))
	if tag != "" {
		id.limit += ":" + tag
	}
	return id, ok
}

// readKey parses the output of Key.String.
func readKey(s string, k *limiter.Key) bool {
	if len(s) != hex.EncodedLen(len(k)) {
		return false
	}
	_, err := hex.Decode(k[:], []byte(s))
	return err == nil
}
