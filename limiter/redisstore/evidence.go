package redisstore

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// An evidence is what the end of a call says about a Redis.
type evidence int

const (
	evidenceUp   evidence = iota // it has answered
	evidenceDown                 // nobody is there, answers in time, or lets us in
	evidenceBusy                 // it is there and says to try again, or a connection was cut
	evidenceNone                 // the caller has left
)

// evidenceOf is what err, the end of a call, says. A connection that was cut may
// be the fault of what lies between, or of a server that restarts: dialling again
// will say. So may a server that is loading, busy with a script, or no master any
// more.
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

// evidenceOfReply is what an error that Redis has answered says: that it works,
// unless it can do nothing now. A password that it does not take is wrong at the next
// try too.
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
