package acme

import (
	"sync/atomic"

	"github.com/rs/zerolog"
	"go.uber.org/zap/zapcore"
)

// A bridge writes what certmagic logs into our log. What it tells of its progress
// is there for who looks for a fault, and so is what it complains of once we are
// leaving.
type bridge struct {
	log     zerolog.Logger
	leaving *atomic.Bool
}

// level is ours for one of zap's.
func (b bridge) level(l zapcore.Level) zerolog.Level {
	switch {
	case b.leaving.Load():
		return zerolog.DebugLevel
	case l >= zapcore.ErrorLevel:
		return zerolog.ErrorLevel
	case l == zapcore.WarnLevel:
		return zerolog.WarnLevel
	}
	return zerolog.DebugLevel
}

// Enabled implements zapcore.LevelEnabler.
func (b bridge) Enabled(l zapcore.Level) bool { return b.level(l) >= b.log.GetLevel() }

// With implements zapcore.Core.
func (b bridge) With(fields []zapcore.Field) zapcore.Core {
	return bridge{b.log.With().Fields(plain(fields)).Logger(), b.leaving}
}

// Check implements zapcore.Core.
func (b bridge) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if b.Enabled(e.Level) {
		return c.AddCore(e, b)
	}
	return c
}

// Write implements zapcore.Core.
func (b bridge) Write(e zapcore.Entry, fields []zapcore.Field) error {
	b.log.WithLevel(b.level(e.Level)).Fields(plain(fields)).Msg(e.Message)
	return nil
}

// Sync implements zapcore.Core; nothing is held back.
func (bridge) Sync() error { return nil }

// plain are the fields as values.
func plain(fields []zapcore.Field) map[string]any {
	m := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(m)
	}
	return m.Fields
}
