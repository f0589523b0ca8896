package http1

import (
	"net/http"
	"sync/atomic"
	"time"
)

// A date renders the field Date once a second. Who appends it does not look at the
// clock: what refreshes it does, some times a second.
type date struct {
	line atomic.Pointer[dateLine]
}

type dateLine struct {
	second int64
	text   []byte
}

// append appends the whole field line.
func (d *date) append(dst []byte) []byte {
	line := d.line.Load()
	if line == nil {
		line = d.refresh()
	}
	return append(dst, line.text...)
}

// refresh sees to it that the date is that of now.
func (d *date) refresh() *dateLine {
	now := time.Now()
	line := d.line.Load()
	if line == nil || line.second != now.Unix() {
		line = &dateLine{now.Unix(), now.UTC().AppendFormat([]byte("Date: "), http.TimeFormat+"\r\n")}
		d.line.Store(line)
	}
	return line
}
