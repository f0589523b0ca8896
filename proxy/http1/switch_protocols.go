package http1

import (
	"net"
	"time"
)

// SwitchProtocols answers 101 with the fields that were added since Begin, and hands the
// connection over: what the client has sent behind its request comes first, as
// unread. Both belong to the caller from then on, deadlines are off, and the
// handler may return before it is done with them.
func (x *Exchange) SwitchProtocols(protocol string) (c net.Conn, unread []byte, err error) {
	if x.stage != responseHead || x.status != 101 || x.Body() != nil || x.Minor == 0 {
		return nil, nil, ErrResponseState
	}
	x.out.add("Connection", "Upgrade")
	x.out.add("Upgrade", protocol)
	if x.out.err != nil {
		return nil, nil, x.out.err
	}
	x.out.end()
	x.stage = responseBody
	if err := x.Flush(); err != nil {
		return nil, nil, err
	}
	x.stage, x.hijacked = responseDone, true
	x.conn.clearReadDeadline()
	if x.conn.writeDeadline.at != 0 {
		_ = x.conn.net.SetWriteDeadline(time.Time{})
	}
	x.conn.server.removeConn(x.conn)
	return x.conn.net, append([]byte(nil), x.in.unread()...), nil
}
