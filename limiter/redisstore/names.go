package redisstore

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strings"

	"github.com/google/uuid"

	"github.com/weir-proxy/weir/limiter"
)

// names are what one store calls its windows in Redis.
type names struct {
	prefix string
	client string // ends the names of what this client counts by itself
}

// newNames makes names of a text that tells clients apart; without one, of chance.
// In a name it is a UUID, as Redisson's are, so that no text can make the name of
// one window that of another.
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

// isPacked reports whether an algorithm keeps all of a window in one string.
func isPacked(a limiter.Algorithm) bool {
	switch a {
	case limiter.FixedWindow, limiter.SlidingWindow, limiter.GCRA, limiter.Cooldown, limiter.SlidingLog:
		return true
	}
	return false
}

// layoutSign is the sign, in a state's name, of the algorithm and of how its states are
// written: what another version writes in another way has another name.
func layoutSign(a limiter.Algorithm) byte {
	if a == limiter.Cooldown {
		return 'c'
	}
	return '0' + byte(a)
}

// keyCount is how many keys a claim's window has: state, log and base, or the state
// alone. A token bucket has those of Redisson; the other algorithms have their own, told
// apart by braces, which no limit's name holds. A state's name is short, because it is a
// third of what a key takes. A limiter that Redisson shares has its own.
func (n names) keyCount(c *limiter.Claim) int {
	switch {
	case c.RedissonName != "":
		return redissonKeys
	case isPacked(c.Limit.Algorithm):
		return 1
	}
	return 3
}

// append appends the name of the i-th key of a claim's window.
func (n names) append(out []byte, c *limiter.Claim, i int) []byte {
	if c.RedissonName != "" {
		return append(out, sharedKeys(c.RedissonName, n.client)[i]...)
	}
	out = append(append(out, n.prefix...), ":{"...)
	out = append(hex.AppendEncode(out, c.Key[:]), "}:"...)
	switch a := c.Limit.Algorithm; {
	case isPacked(a):
		box, _ := splitName(c.Limit.Name)
		out = append(append(append(out, box...), '{', layoutSign(a)), '}')
	case a != limiter.TokenBucket:
		out = append(append(append(append(out, c.Limit.Name...), ":{"...), a.String()...), '}')
		out = append(out, windowKey(i)...)
	default:
		out = append(append(out, c.Limit.Name...), windowKey(i)...)
	}
	if c.Limit.Scope == limiter.PerClient {
		out = append(append(out, ':'), n.client...)
	}
	return out
}

// windowKey ends the name of the i-th key of a window that has three.
func windowKey(i int) string {
	switch i {
	case 0:
		return ":value"
	case 1:
		return ":permits"
	}
	return ":base"
}

// keys are those of a claim's window.
func (n names) keys(c limiter.Claim) []string {
	all := make([]string, n.keyCount(&c))
	for i := range all {
		all[i] = string(n.append(nil, &c, i))
	}
	return all
}

// splitName splits the name of a limit whose state is one string: windows of one key share
// a box, a string, if what stands before the last colon is the same. The tag behind it
// tells them apart there.
func splitName(limit string) (box, tag string) {
	i := strings.LastIndexByte(limit, ':')
	if i <= 0 || i == len(limit)-1 || len(limit)-i > maxTag {
		return limit, ""
	}
	return limit[:i], limit[i+1:]
}

// maxTag is the most bytes of a tag: its length is one byte, and 255 begins boxes.
const maxTag = 254

// windowName is the name of the Redisson rate limiter that keeps one limit of
// one key. The braces make all limits of a key share a cluster slot.
func windowName(prefix, limit string, k limiter.Key) string {
	return prefix + ":{" + k.String() + "}:" + limit
}

// redissonKey is how Redisson names what belongs to name: in the same slot.
func redissonKey(name, what string) string {
	if strings.Contains(name, "{") {
		return name + ":" + what
	}
	return "{" + name + "}:" + what
}

// scopeOtherClient is the scope of what another client counts by itself.
const scopeOtherClient = limiter.PerClient + 1

// parseWindow reads what a script publishes: the number of the algorithm and the window's first key, and behind a
// space the tag of one in a box; or the name of a limiter that Redisson shares.
func (n names) parseWindow(message string) (id windowID, ok bool) {
	number, name, _ := strings.Cut(message, ":")
	if number == "shared" {
		return windowID{slot: slot{redisson: name}}, true
	}
	if len(number) != 1 || number[0] < '0' || number[0] > '0'+byte(limiter.SlidingLog) {
		return id, false
	}
	id.algorithm = limiter.Algorithm(number[0] - '0')
	name, tag, boxed := strings.Cut(name, " ")
	if boxed != isPacked(id.algorithm) {
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
	id.limit, ok = strings.CutSuffix(name, firstKeySuffix(id.algorithm))
	if tag != "" {
		id.limit += ":" + tag
	}
	return id, ok
}

// firstKeySuffix ends the name of a window's first key.
func firstKeySuffix(a limiter.Algorithm) string {
	if a == limiter.TokenBucket {
		return ":value"
	}
	if isPacked(a) {
		return "{" + string(layoutSign(a)) + "}"
	}
	return ":{" + a.String() + "}:value"
}

// readKey reads what Key.String writes.
func readKey(s string, k *limiter.Key) bool {
	if len(s) != hex.EncodedLen(len(k)) {
		return false
	}
	_, err := hex.Decode(k[:], []byte(s))
	return err == nil
}
