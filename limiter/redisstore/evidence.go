package redisstore

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// An evidence is what the result of a call says about the health of Redis.
type evidence int

const (
	evidenceUp   evidence = iota // Redis has replied
	evidenceDown                 // unreachable, no reply in time, access denied, or full
	evidenceBusy                 // temporarily unable, or a connection was closed
	evidenceNone                 // the call was canceled
)

// evidenceOf classifies the error of a call. A connection that was closed may be the
// fault of the network or of a server that restarts; the next dial tells. A server that
// is loading, running a script, or no longer a master is busy too.
func evidenceOf(err error) evidence {
	if err == nil {
		return evidenceUp
	}
	var reply redis.Error
	var dial *net.OpError
	switch {
	case errors.Is(err, redis.Nil):
		return evidenceUp
	case errors.As(err, &reply):
		return evidenceOfReply(err)
	case errors.Is(err, context.Canceled):
		return evidenceNone
	case errors.As(err, &dial) && dial.Op == "dial":
		return evidenceDown
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return evidenceBusy
	}
	return evidenceDown
}

// evidenceOfReply classifies an error reply: Redis works, unless it temporarily cannot
// serve calls. A rejected password is rejected again at the next attempt, and a Redis that is full, or
// cannot save, stays so.
func evidenceOfReply(err error) evidence {
	switch {
	case hasCode(err, "NOAUTH", "WRONGPASS", "OOM", "MISCONF", "NOREPLICAS"):
		return evidenceDown
	case hasCode(err, "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "NOPERM", "ERR max number of clients"):
		return evidenceBusy
	}
	return evidenceUp
}

// hasCode reports whether Redis replied with an error that has one of codes, also if a command of a script had it: Redis
// before 7 puts it into words of its own then.
func hasCode(err error, codes ...string) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	for _, code := range codes {
		if redis.HasErrorPrefix(err, code) || strings.Contains(reply.Error(), ": -"+code+" ") {
			return true
		}
	}
	return false
}

// WhyNotWritable returns why Redis refuses writes, if err says so, and "" otherwise.
func WhyNotWritable(err error) string {
	for code, why := range map[string]string{
		"OOM":        "it is full; raise its maxmemory",
		"MISCONF":    "it cannot save to its disk; see its log",
		"READONLY":   "it is a read-only replica; write the address of its master, or use mode sentinel or cluster",
		"MASTERDOWN": "it is a replica that has lost its master",
		"NOREPLICAS": "it has too few replicas; see its min-replicas-to-write",
	} {
		if hasCode(err, code) {
			return why
		}
	}
	return ""
}
