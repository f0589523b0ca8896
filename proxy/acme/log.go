package acme

import (
	"sync/atomic"

	"github.com/rs/zerolog"
	"go.uber.org/zap/zapcore"
)

// A logBridge is a zapcore.Core that writes the log of certmagic to our log.
// Progress messages, and everything during shutdown, are written at debug level.
type logBridge struct {
	log     zerolog.Logger
	closing *atomic.Bool
}

// level maps a zap level to a zerolog level.
func (b logBridge) level(l zapcore.Level) zerolog.Level {
	switch {
	case b.closing.Load():
		return zerolog.DebugLevel
	case l >= zapcore.ErrorLevel:
		return zerolog.ErrorLevel
	case l == zapcore.WarnLevel:
		return zerolog.WarnLevel
	}
	return zerolog.DebugLevel
}

// Enabled implements zapcore.LevelEnabler.
func (b logBridge) Enabled(l zapcore.Level) bool { return b.level(l) >= b.log.GetLevel() }

// With implements zapcore.Core.
func (b logBridge) With(fields []zapcore.Field) zapcore.Core {
	return logBridge{b.log.With().Fields(fieldValues(fields)).Logger(), b.closing}
}

// Check implements zapcore.Core.
func (b logBridge) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if b.Enabled(e.Level) {
		return c.AddCore(e, b)
	}
	return c
}

// Write implements zapcore.Core.
func (b logBridge) Write(e zapcore.Entry, fields []zapcore.Field) error {
	b.log.WithLevel(b.level(e.Level)).Fields(fieldValues(fields)).Msg(e.Message)
	return nil
}

// Sync implements zapcore.Core; nothing is buffered.
func (logBridge) Sync() error { return nil }

// fieldValues returns the fields as a map.
func fieldValues(fields []zapcore.Field) map[string]any {
	m := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(m)
	}
	return m.Fields
}
