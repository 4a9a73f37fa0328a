# Copyright: the hwtune developers
# Apache License 2.0 (see https://www.apache.org/licenses/LICENSE-2.0)
"""The controller's half of the module hwtune: keeps whole reports in files, out of the results."""

import os
import tempfile

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    _requires_connection = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        folder = arguments.get("save_to")
        wanted = boolean(arguments.get("full_report", False), strict=False)
        if folder:
            arguments["full_report"] = True
        result.update(self._execute_module(module_args=arguments, task_vars=task_vars))
        if not folder or "report" not in result:
            return result
        if not self._task.check_mode:
            name = task_vars["inventory_hostname"].replace(os.sep, "_") + ".json"
            result["saved"] = os.path.join(os.path.abspath(os.path.expanduser(folder)), name)
            try:
                _write(result["saved"], result["report"])
            except OSError as error:
                raise AnsibleActionFail(
                    f"the report cannot be written to {result['saved']} on the controller: {error.strerror}"
                ) from error
        if not wanted:
            del result["report"]
        return result


def _write(path, text):
    """The old file or the new one, never a half. Reports name serial numbers: they are for their owner."""
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".hwtune-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
