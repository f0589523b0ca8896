package http1

import (
	"net/http"
	"sync/atomic"
	"time"
)

// A dateCache renders the field Date once a second. Who appends it does not look at the
// clock: what refreshes it does, some times a second.
type dateCache struct {
	line atomic.Pointer[renderedDate]
}

type renderedDate struct {
	second int64
	text   []byte
}

// append appends the whole field line.
func (d *dateCache) append(dst []byte) []byte {
	line := d.line.Load()
	if line == nil {
		line = d.refresh()
	}
	return append(dst, line.text...)
}

// refresh sees to it that the date is that of now.
func (d *dateCache) refresh() *renderedDate {
	now := time.Now()
	line := d.line.Load()
	if line == nil || line.second != now.Unix() {
		line = &renderedDate{now.Unix(), now.UTC().AppendFormat([]byte("Date: "), http.TimeFormat+"\r\n")}
		d.line.Store(line)
	}
	return line
}
