package http1

import (
	"net"
	"time"
)

// SwitchProtocols sends a 101 response with the fields that were added since Begin, and
// hands over the connection. unread holds bytes that the client has sent after its
// request. The caller owns both from then on, also after the handler has returned. No
// deadlines are set on the connection.
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
