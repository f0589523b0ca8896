package http1

import (
	"time"

	"github.com/weir-proxy/weir/proxy/http1/internal/socket"
)

// An idleRead checks an idle connection whose socket cannot be polled: on a system
// without poll(2), such as Windows, and if there is no socket. A read is pending while
// the connection is idle. It returns if the upstream closes the connection or sends
// unexpected bytes; otherwise a deadline ends it when the connection is needed again. A
// read that begins after its deadline would not look at the socket. This costs a
// goroutine per idle connection.
type idleRead chan error // receives the result of the read

// beginIdleRead begins the read, unless the socket of u can be polled. It reports
// whether u can be kept.
func (u *clientConn) beginIdleRead() bool {
	if u.probe.Raw() != nil {
		return true
	}
	if u.idleRead == nil {
		u.idleRead = make(idleRead, 1)
	}
	u.readDeadline.at = 0
	if u.net.SetReadDeadline(time.Time{}) != nil {
		return false
	}
	go func() {
		_, err := u.net.Read(u.oneByte[:])
		u.idleRead <- err
	}()
	return true
}

// endIdleRead ends the read and returns the state of the upstream's end of the
// connection.
func (u *clientConn) endIdleRead() socket.State {
	interrupted := u.net.SetReadDeadline(pastTime()) // if it fails, the connection is closed
	switch err := <-u.idleRead; {
	case err == nil:
		return socket.Readable
	case !timedOut(err), interrupted != nil, u.net.SetReadDeadline(time.Time{}) != nil:
		return socket.Reset
	}
	return socket.Open
}
