package redisstore

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"io/fs"
	"math/bits"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore/internal/scripts"
	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
)

//go:embed lua/*.lua lua/*/*.lua
var luaFiles embed.FS

// luaFolder returns the folder lua.
func luaFolder() fs.FS {
	folder, err := fs.Sub(luaFiles, "lua")
	if err != nil {
		panic(err) // its name is valid
	}
	return folder
}

// A script is a text and the hash by which Redis remembers it.
type script struct {
	text, hash string
	call       string // what begins a command that runs it, as it is sent
}

// scriptSet has the scripts of a Store, which are made when they are first asked for, in some milliseconds each.
type scriptSet struct {
	source scripts.Source
	mu     sync.Mutex // guards made
	made   map[scriptName]*script
}

// A scriptName has the arguments of scripts.Source.Text, and whether it is one for keys of several slots.
type scriptName struct {
	name       string
	algorithms uint16
	crossSlot  bool
}

// get returns the script of a name, for all algorithms that have a bit.
func (s *scriptSet) get(name string, algorithms uint16) *script {
	return s.named(scriptName{name, algorithms, false})
}

func (s *scriptSet) named(n scriptName) *script {
	s.mu.Lock()
	defer s.mu.Unlock()
	made := s.made[n]
	if made == nil {
		source := s.source
		source.CrossSlot = n.crossSlot
		text, err := source.Text(n.name, n.algorithms)
		if err != nil {
			panic(err) // its files are embedded
		}
		sum := sha1.Sum([]byte(text)) // the name Redis gives it, no secret
		hash := hex.EncodeToString(sum[:])
		made = &script{text: text, hash: hash, call: string(wire.AppendBulk(wire.AppendBulk(nil, "EVALSHA"), hash))}
		s.made[n] = made
	}
	return made
}

const allAlgorithms = 1<<limiter.NumAlgorithms - 1

// choose returns the fastest script that takes what p asks for.
func (s *scriptSet) choose(p *payload) *script {
	n, a := scriptName{"many", p.algorithms, p.crossSlot}, bits.TrailingZeros16(p.algorithms)
	switch {
	case bits.OnesCount16(p.algorithms) != 1, len(p.follows)+len(p.notes) > 0,
		p.repeated && !limiter.Algorithm(a).IsPacked():
		n.name, n.algorithms = "take", allAlgorithms // one for all, which Redis knows after the first
	case p.windowCount == 1 && !p.repeated:
		n.name = "one"
	}
	return s.named(n)
}

// onceCmd is a command that the client never sends again: after a timeout it is
// not known whether Redis ran it, and running it twice would count twice.
type onceCmd struct{ *redis.Cmd }

// NoRetry keeps a client from sending the command a second time.
func (onceCmd) NoRetry() bool { return true }

// runner is the part of a client that a store needs.
type runner interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// run has Redis run s once: by its hash, and by its text if Redis does not know
// the hash, for then nothing ran the first time.
func (s *script) run(ctx context.Context, r runner, keys []string, args []any) (any, error) {
	val, err := s.send(ctx, r, "evalsha", s.hash, keys, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return s.send(ctx, r, "eval", s.text, keys, args)
	}
	return val, err
}

// send has Redis run a script, as soon as it can: while the slot of several keys moves, and only some have moved, no master can.
// That one says so is no retry, for nothing ran.
func (*script) send(ctx context.Context, r runner, verb, what string, keys []string, args []any) (any, error) {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, verb, what, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	all = append(all, args...)
	for wait := time.Millisecond; ; wait = min(2*wait, maxMoveWait) {
		cmd := onceCmd{redis.NewCmd(ctx, all...)}
		cmd.SetFirstKeyPos(3)
		err := r.Process(ctx, cmd)
		if !redis.HasErrorPrefix(err, "TRYAGAIN") || pause(ctx, wait) != nil {
			return cmd.Val(), err
		}
	}
}

// maxMoveWait is the longest time between two calls while keys move.
const maxMoveWait = 50 * time.Millisecond

// pause waits for d, or returns the error of ctx.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err()
}
