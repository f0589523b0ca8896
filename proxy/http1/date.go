package http1

import (
	"net/http"
	"sync/atomic"
	"time"
)

// A dateCache holds the Date field line, rendered once a second. append does not read
// the clock; Server.monitorClients calls refresh several times a second.
type dateCache struct {
	line atomic.Pointer[renderedDate]
}

type renderedDate struct {
	second int64
	text   []byte
}

// append appends the field line with its CRLF.
func (d *dateCache) append(dst []byte) []byte {
	line := d.line.Load()
	if line == nil {
		line = d.refresh()
	}
	return append(dst, line.text...)
}

// refresh renders the field line again if the second has changed.
func (d *dateCache) refresh() *renderedDate {
	now := time.Now()
	line := d.line.Load()
	if line == nil || line.second != now.Unix() {
		line = &renderedDate{now.Unix(), now.UTC().AppendFormat([]byte("Date: "), http.TimeFormat+"\r\n")}
		d.line.Store(line)
	}
	return line
}
