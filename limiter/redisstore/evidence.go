package redisstore

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// An evidence is what the result of a call says about the health of Redis.
type evidence int

const (
	evidenceUp   evidence = iota // Redis has replied
	evidenceDown                 // unreachable, no reply in time, or access denied
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
// serve calls. A rejected password is rejected again at the next attempt.
func evidenceOfReply(err error) evidence {
	if redis.HasErrorPrefix(err, "NOAUTH") || redis.HasErrorPrefix(err, "WRONGPASS") {
		return evidenceDown
	}
	for _, prefix := range []string{
		"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "OOM", "MISCONF",
		"NOREPLICAS", "NOPERM", "ERR max number of clients",
	} {
		if redis.HasErrorPrefix(err, prefix) {
			return evidenceBusy
		}
	}
	return evidenceUp
}
