package http1

import (
	"net"
	"time"
)

// SwitchProtocols sends a 101 response with the fields that were added since Begin, and
// hands over the connection. unread holds bytes that the client has sent after its
// request. The caller owns both from then on, also after the handler has returned. No
// deadlines are set on the connection.
func (e *Exchange) SwitchProtocols(protocol string) (c net.Conn, unread []byte, err error) {
	if e.stage != responseHead || e.status != 101 || e.Body() != nil || e.Minor == 0 {
		return nil, nil, ErrResponseState
	}
	e.out.add("Connection", "Upgrade")
	e.out.add("Upgrade", protocol)
	if e.out.err != nil {
		return nil, nil, e.out.err
	}
	e.out.end()
	e.stage = responseBody
	if err := e.Flush(); err != nil {
		return nil, nil, err
	}
	e.stage, e.hijacked = responseDone, true
	e.conn.clearReadDeadline()
	if e.conn.writeDeadline.at != 0 {
		_ = e.conn.net.SetWriteDeadline(time.Time{})
	}
	e.conn.server.removeConn(e.conn)
	return e.conn.net, append([]byte(nil), e.in.unread()...), nil
}
