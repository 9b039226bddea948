"""Log each measurement in the user's database at once, so that an interrupted run can resume."""

import time
from collections.abc import Mapping
from typing import Any

from wsdsl.artifact.versions import emitter
from wsdsl.ir.hardware.target import target_of_device
from wsdsl.records.database import Database, RecordsError, user_file
from wsdsl.records.entry import Key, Row
from wsdsl.tune.result import Trial

CLOSE = 1.05
"""Schedules that an earlier run measured slower than this ratio are not measured again."""


class MeasurementLog:
    """`about`: the measuring process's report on its GPU. Errors of the disk become notes."""

    def __init__(self, name: str, key: Key, dims: Mapping[str, int], about: dict[str, Any]) -> None:
        self._name, self._dims, self._about = name, dims, about
        target = target_of_device(about["device"], about["arch"], about["num_sms"])
        self._key = key._replace(card=target.name, num_sms=target.num_sms)
        self._emitter = emitter() or ""
        path = user_file()
        self._database = None if path is None else Database(path)
        self.notes: tuple[str, ...] = ()
        if path is None:
            self.notes = ("the measurements are not cached: WSDSL_CACHE_DIR is off",)
        self._known = {row.schedule: row for row in self._rows() if row.emitter == self._emitter}

    def recall(self, trial: Trial, incumbent: Trial) -> bool:
        """Fill in an earlier measurement by this version of the compiler; False if `trial` is to be
        measured: it is new, or was not much slower than the incumbent.
        """
        row = self._known.get(repr(trial.schedule)) if self._emitter else None
        base = self._known.get(repr(incumbent.schedule))
        if row is None or base is None or base.failure:
            return False
        if row.failure:
            trial.failure, trial.is_old = row.failure, True
        elif row.bursts > CLOSE * base.bursts:
            trial.bursts, trial.ratio, trial.is_old = row.bursts, row.bursts / base.bursts, True
            trial.sustained, trial.spread, trial.samples = row.sustained, row.spread, row.samples
        return trial.is_old

    def write(self, trial: Trial) -> None:
        self._to_disk(lambda database: database.add([self.row(trial)]))

    def choose(self, trial: Trial) -> None:
        self._to_disk(lambda database: database.choose(self.row(trial, chosen=True)))

    def row(self, trial: Trial, *, chosen: bool = False) -> Row:
        known = self._known.get(repr(trial.schedule))
        return Row(
            **self._key._asdict(),
            name=self._name,
            device=self._about["device"],
            memory_gib=self._about["memory_bytes"] >> 30,
            emitter=self._emitter,
            schedule=repr(trial.schedule),
            bursts=trial.bursts,
            sustained=trial.sustained,
            spread=trial.spread,
            samples=trial.samples,
            date=time.strftime("%Y-%m-%d %H:%M:%S"),
            source="tune",
            chosen=chosen or bool(known and known.chosen),
            failure=trial.failure,
            exact=", ".join(f"{dim} = {size}" for dim, size in self._dims.items()),
        )

    def _rows(self) -> list[Row]:
        try:
            return [] if self._database is None else self._database.rows(self._key)
        except RecordsError as error:
            self._lose(error)
            return []

    def _to_disk(self, work: Any) -> None:
        try:
            if self._database is not None:
                work(self._database)
        except RecordsError as error:
            self._lose(error)

    def _lose(self, error: RecordsError) -> None:
        self._database = None
        self.notes = (*self.notes, f"the measurements are not cached: {error}")
